package label

import "strings"

// wrappers are programs that run another one: its name follows after this many
// operands.
var wrappers = map[string]int{
	"builtin": 0, "command": 0, "doas": 0, "env": 0, "exec": 0, "nice": 0, "nohup": 0, "setsid": 0, "sudo": 0, "time": 0,
	"timeout": 1,
}

// followedByName has the beginnings of commands after which a plain word is a name
// and no secret. `echo` and `cargo login` are not in it: what follows them may be one.
var followedByName = set(
	// by a file, a directory or a program
	`., cat, cd, chmod, cp, diff, du, file, find, head, less, ln, ls, man, mkdir, more, mv, pushd, rm, rmdir, source, stat, tail,
	tee, touch, tree, type, unzip, wc, which, emacs, nano, vi, vim,
	ash, bash, bun, dash, deno, fish, ksh, lua, mksh, node, perl, php, python, ruby, sh, tsx, zsh,
	ansible-playbook, cc, clang, clang++, cmake, eslint, g++, gcc, jest, mypy, npx, pytest, rustc, tsc, uvx, vitest,
	bundle exec, go build, go run, go test, go vet, npm exec, pnpm exec, poetry run, uv run`,
	// by a target, a script, a process or a time
	`just, kill, make, ninja, rake, sleep, bun run, deno task, npm run, pnpm run, yarn run`,
	// by a subcommand
	`apk, apt, apt-get, aws, az, brew, bundle, cargo, composer, conda, dnf, docker, dotnet, gcloud, gh, git, go, gradle, gradlew,
	helm, kubectl, mix, mvn, mvnw, npm, pip, pnpm, podman, poetry, ruff, rustup, systemctl, terraform, tofu, trl, uv, yarn, yum,
	aws s3, docker compose, docker container, docker image, gh issue, gh pr, gh repo, gh run, git remote, git stash,
	git submodule, git worktree, go mod, go tool, kubectl get, podman compose, trl exec, trl session, uv pip`,
)

// set returns the entries of lists that are separated by commas.
func set(lists ...string) map[string]bool {
	m := map[string]bool{}
	for _, list := range lists {
		for entry := range strings.SplitSeq(list, ",") {
			m[strings.TrimSpace(entry)] = true
		}
	}
	return m
}
