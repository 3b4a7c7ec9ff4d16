package label

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/printable"
)

func TestOf(t *testing.T) {
	for command, want := range map[string]string{
		"":                                     "",
		" \n\t":                                "",
		"make":                                 "make",
		"make\n":                               "make",
		"make &":                               "make",
		"make -j8":                             "make …",
		"make test lint":                       "make test …",
		"npm test":                             "npm test",
		"npm run build":                        "npm run build",
		"go test ./...":                        "go test ./...",
		"go test -race ./...":                  "go test …",
		"git push origin main":                 "git push …",
		"git remote add origin x":              "git remote add …",
		"docker compose up -d":                 "docker compose up …",
		"python3 server.py 8080 & sleep 1":     "python3 server.py …",
		"/usr/bin/python3.12 -m http.server":   "/usr/bin/python3.12 …",
		"gcc-13 main.c":                        "gcc-13 main.c",
		"sleep 300":                            "sleep 300",
		"sudo make install":                    "sudo make install",
		"sudo timeout 60 npm run build":        "sudo timeout 60 npm run …",
		"sudo -u postgres psql":                "sudo …",
		"env A=b make":                         "env make",
		"cat 报告.txt":                           "cat 报告.txt",
		"cat a.txt | sort":                     "cat a.txt …",
		"cat a.txt>b":                          "cat …",
		". ./env.sh":                           ". ./env.sh",
		"cd /usr":                              "cd /usr",
		"cd /usr; ls":                          "ls",
		"cd /srv/app && npm test":              "npm test",
		"cd /srv/app &&\n  npm test 2>&1":      "npm test …",
		"cd a\ncd b\nmake":                     "make",
		"cd /srv/app || exit":                  "cd /srv/app …",
		"cd /srv/app && \"$run\"":              "cd /srv/app …",
		"cd /srv/app; ":                        "cd /srv/app",
		"CI=1 FORCE_COLOR=0 make test":         "make test",
		"for f in *.go; do":                    "for …",
		"cat <<EOF > x\nhunter2\nEOF":          "cat …",
		"make # hunter2":                       "make …",
		"make;echo x":                          "make …",
		"/a/long/path/to/the/programs/bin/run": "run",
		"make " + strings.Repeat("x", 2<<20):   "make …",
		strings.Repeat("x", 2<<20):             "",
	} {
		if got := Of(command); got != want {
			t.Errorf("%.80q: %q, want %q", command, got, want)
		}
	}
}

// hostile are commands with the secret hunter2 in a place where people and programs
// put secrets, and the label of each.
var hostile = map[string]string{
	"echo hunter2":                                     "echo …",
	"echo hunter2 | sudo -S make install":              "echo …",
	"printf hunter2":                                   "printf …",
	"printf %s hunter2 > key":                          "printf …",
	"export TOKEN=hunter2":                             "export …",
	"export TOKEN=hunter2; make":                       "export …",
	"set hunter2":                                      "set …",
	"read hunter2":                                     "read …",
	"TOKEN=hunter2":                                    "",
	"TOKEN=hunter2 make":                               "make",
	"TOKEN=hunter2; make":                              "make",
	"TOKEN=my&hunter2 make":                            "",
	"TOKEN=my|hunter2":                                 "",
	"TOKEN='my hunter2' make":                          "",
	"TOKEN=\"my hunter2\" make":                        "",
	"TOKEN=my\\ hunter2 make":                          "",
	"TOKEN=$'my hunter2' make":                         "",
	"TOKEN=${A:-my hunter2} make":                      "",
	"TOKEN=$(echo hunter2) make":                       "",
	"TOKEN=`echo hunter2` make":                        "",
	"TOKENS=(my hunter2 too) make":                     "",
	"declare TOKEN=hunter2":                            "declare …",
	"alias x='curl -u hunter2'":                        "alias …",
	"env TOKEN=hunter2 make":                           "env make",
	"env -i TOKEN=hunter2 make":                        "env …",
	"curl -H 'Authorization: hunter2' x":               "curl …",
	"curl -u me:hunter2 x":                             "curl …",
	"curl https://me:hunter2@host/":                    "curl …",
	"curl hooks.example.com/T0/hunter2":                "curl …",
	"wget host/?key=hunter2":                           "wget …",
	"mysql -phunter2 db":                               "mysql …",
	"mysqladmin password hunter2":                      "mysqladmin …",
	"psql postgres://me:hunter2@h/db":                  "psql …",
	"redis-cli -a hunter2":                             "redis-cli …",
	"redis-cli auth hunter2":                           "redis-cli …",
	"docker login -u x -p hunter2":                     "docker login …",
	"docker login hunter2":                             "docker login …",
	"docker run -e A=hunter2 x":                        "docker run …",
	"docker swarm join hunter2":                        "docker swarm …",
	"git clone https://me:hunter2@host/":               "git clone …",
	"git clone hunter2":                                "git clone …",
	"git config user.password hunter2":                 "git config …",
	"git remote set-url origin https://hunter2@h":      "git remote set-url …",
	"git commit -m hunter2":                            "git commit …",
	"git -c http.extraheader=hunter2 pull":             "git …",
	"gh auth login hunter2":                            "gh auth …",
	"gh secret set NAME -b hunter2":                    "gh secret …",
	"cargo login hunter2":                              "cargo login …",
	"npm config set _authToken hunter2":                "npm config …",
	"npm run deploy hunter2":                           "npm run deploy …",
	"npm token revoke hunter2":                         "npm token …",
	"pip install --index-url https://hunter2@h x":      "pip install …",
	"aws configure set aws_secret_access_key hunter2":  "aws configure …",
	"kubectl create secret generic x --from=hunter2":   "kubectl create …",
	"kubectl config set-credentials x --token hunter2": "kubectl config …",
	"dotnet user-secrets set K hunter2":                "dotnet user-secrets …",
	"vault login hunter2":                              "vault …",
	"op signin hunter2":                                "op …",
	"openssl passwd hunter2":                           "openssl …",
	"sshpass -p hunter2 ssh h":                         "sshpass …",
	"htpasswd -b f me hunter2":                         "htpasswd …",
	"ssh me@h 'echo hunter2'":                          "ssh …",
	"su -c 'echo hunter2'":                             "su …",
	"python3 -c 'hunter2'":                             "python3 …",
	"python3 deploy.py hunter2":                        "python3 deploy.py …",
	"./deploy.sh hunter2":                              "./deploy.sh …",
	"make PASSWORD=hunter2":                            "make …",
	"make deploy PASSWORD=hunter2":                     "make deploy …",
	"cat <<< hunter2":                                  "cat …",
	"cat <<EOF\nhunter2\nEOF":                          "cat …",
	"[ \"$p\" = hunter2 ]":                             "",
	"test hunter2 = x":                                 "test …",
	"case hunter2 in x) ;; esac":                       "case …",
	"for p in hunter2; do x; done":                     "for …",
	"grep hunter2 log":                                 "grep …",
	"sed s/hunter2/x/ f":                               "sed …",
	"expect -c 'send hunter2'":                         "expect …",
	"(echo hunter2)":                                   "",
	"{ echo hunter2; }":                                "",
	"! echo hunter2":                                   "",
	"'hunter2'":                                        "",
	"\"hunter2\"":                                      "",
	"$(echo hunter2)":                                  "",
	"# hunter2\nmake":                                  "",
	"cat '/a b/hunter2'":                               "cat …",
	"cat /a\\ b/hunter2":                               "cat …",
	"cat $HOME/hunter2":                                "cat …",
	"cat ~/hunter2 # ok":                               "cat ~/hunter2 …", // the name of a file
	"cd x && echo hunter2":                             "echo …",
	"sudo env TOKEN=hunter2 make":                      "sudo env make",
	"exec 3<<<hunter2":                                 "exec …",
	"time echo hunter2":                                "time echo …",
	"command echo hunter2":                             "command echo …",
	"timeout hunter2 x":                                "timeout hunter2 x", // a time
	"AKIAIOSFODNN7EXAMPLE":                             "",
	"ghp_16C7e42F292c6912E7710c838347Ae178B4a":         "",
	"xoxb-12ab34cd56ef78":                              "",
	"d41d8cd98f00b204":                                 "",
	"Tr0ub4dor":                                        "",
	"P@ssw0rd":                                         "",
	"31337":                                            "",
	"cat AKIAIOSFODNN7EXAMPLE":                         "cat …",
	"git d41d8cd98f00b204":                             "git …",
	"make \u202etxt":                                   "make …",
	"make \x1b[31m":                                    "make …",
	"make \xff":                                        "make …",
	"\u3000make":                                       "",
	"cat a\x00b":                                       "cat …",
	"cat -----BEGIN":                                   "cat …",
	"cat\thunter2/\x07":                                "cat …",
	"cat \\\nhunter2":                                  "cat …",
	"read -s p <<< hunter2; ssh x":                     "read …",
	"eval echo hunter2":                                "eval …",
	"xargs echo hunter2":                               "xargs …",
	"telnet h hunter2":                                 "telnet …",
	"gpg --passphrase hunter2 f":                       "gpg …",
	"zip -P hunter2 a b":                               "zip …",
	"terraform apply -var p=hunter2":                   "terraform apply …",
	"heroku config:set A=hunter2":                      "heroku …",
	"systemctl set-environment A=hunter2":              "systemctl set-environment …",
	"trl run -- echo hunter2":                          "trl run …",
	"az login -p hunter2":                              "az login …",
	"gcloud auth print hunter2":                        "gcloud auth …",
	"helm upgrade x --set p=hunter2":                   "helm upgrade …",
	"composer config x hunter2":                        "composer config …",
	"poetry config pypi-token.pypi hunter2":            "poetry config …",
	"conda config --set x hunter2":                     "conda config …",
	"yarn config set npmAuthToken hunter2":             "yarn config …",
	"brew tap me/x https://hunter2@h":                  "brew tap …",
	"go env -w GOPROXY=https://hunter2@h":              "go env …",
	"uv publish --token hunter2":                       "uv publish …",
	"mvn deploy -Dpassword=hunter2":                    "mvn deploy …",
	"gradle publish -Ppassword=hunter2":                "gradle publish …",
	"docker compose run -e A=hunter2 web":              "docker compose run …",
	"ansible-playbook site.yml -e password=hunter2":    "ansible-playbook site.yml …",
	"node app.js --key hunter2":                        "node app.js …",
	"npx wrangler secret put hunter2":                  "npx wrangler …",
	"rake deploy[hunter2]":                             "rake …",
	"sh -c 'echo hunter2'":                             "sh …",
	"bash -lc \"export A=hunter2\"":                    "bash …",
	"nohup ./x hunter2 &":                              "nohup ./x …",
	"make test && curl -u me:hunter2 h":                "make test …",
	"ls; echo hunter2":                                 "ls …",
	"kill 12; echo hunter2":                            "kill 12 …",
	"A=1 B=$TOKEN echo hunter2":                        "",
	"A=1 B=hunter2 echo hunter2":                       "echo …",
	"cat key|ssh h hunter2":                            "cat key …",
	"make\nhunter2 x":                                  "make …",
	"make >hunter2":                                    "make …",
	"make 2>hunter2":                                   "make …",
	"sudo su hunter2":                                  "sudo su …",
	"stat\\ hunter2":                                   "",
	"pass" + "wd hunter2":                              "passwd …",
	"function f() { echo hunter2; }":                   "function …",
	"f() { echo hunter2; }":                            "",
	"while read hunter2; do x; done":                   "while …",
	"coproc echo hunter2":                              "coproc …",
	"trap 'echo hunter2' EXIT":                         "trap …",
	"ssh-add - <<< hunter2":                            "ssh-add …",
	"cryptsetup open x hunter2":                        "cryptsetup …",
	"wpa_passphrase net hunter2":                       "wpa_passphrase …",
	"nmcli dev wifi connect net password hunter2":      "nmcli …",
	"smbclient //h/s hunter2":                          "smbclient …",
	"ldapsearch -w hunter2":                            "ldapsearch …",
	"mongosh mongodb://me:hunter2@h":                   "mongosh …",
	"rclone obscure hunter2":                           "rclone …",
	"aws s3 presign hunter2":                           "aws s3 presign …",
	"kubectl get secret hunter2":                       "kubectl get secret …",
	"http POST h password=hunter2":                     "http …",
	"claude -p hunter2":                                "claude …",
	"./gradlew publish hunter2":                        "./gradlew publish …",
	"uv run deploy.py hunter2":                         "uv run deploy.py …",
	"bundle exec rake hunter2":                         "bundle exec rake …",
	"poetry run deploy hunter2":                        "poetry run deploy …",
}

func TestHostileCommands(t *testing.T) {
	for command, want := range hostile {
		if got := Of(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

func TestOfArgv(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"make"}, "make"},
		{[]string{"make", "test"}, "make test"},
		{[]string{"make", ""}, "make …"},
		{[]string{"python3", "server.py", "hunter2"}, "python3 server.py …"},
		{[]string{"sh", "-c", "echo hunter2"}, "sh …"},
		{[]string{"A=b", "hunter2"}, ""},
		{[]string{"env", "A=my hunter2", "x"}, "env …"},
		{[]string{"env", "A=;cat", "hunter2"}, "env …"},
		{[]string{"cat;", "hunter2"}, ""},
		{[]string{"cat", "a b"}, "cat …"},
		{[]string{"cat", "\nls"}, "cat …"},
	} {
		before := strings.Join(c.argv, "\x00")
		if got := OfArgv(c.argv); got != c.want {
			t.Errorf("%q: %q, want %q", c.argv, got, c.want)
		}
		if strings.Join(c.argv, "\x00") != before {
			t.Errorf("%q was changed", c.argv)
		}
	}
}

// FuzzOf checks for any command and any two secrets that the label does not depend on
// the secret, wherever it stands: behind a quote, a flag, a variable, an assignment,
// or as the argument of a program that takes any text.
func FuzzOf(f *testing.F) {
	for command := range hostile {
		f.Add(command, "hunter2", "correct horse\nbattery && staple")
	}
	f.Add("cd a && ", "", "; cat x")
	f.Add("a-program-with-a-long-name", "a-secret/with-a-slash", "0")
	f.Fuzz(func(t *testing.T, command, one, other string) {
		label := Of(command)
		if len(label) > 200 || !printable.Line(label) {
			t.Fatalf("%q has the label %q", command, label)
		}
		rest := command
		for word := range strings.FieldsSeq(strings.TrimSuffix(label, omitted)) {
			_, after, found := strings.Cut(rest, word)
			if !found || !isSafe(word) {
				t.Fatalf("%q has the label %q", command, label)
			}
			rest = after
		}
		for _, before := range []string{"'", "\"", "$", "`", "\\", "(", "<", " -", " '", " \"$", " #", " {", " ./x@", "; echo x", "\nexport x", " | mysql x", "& A=\"x "} {
			if a, b := Of(command+before+one), Of(command+before+other); a != b && len(command) < maxText/2 {
				t.Fatalf("%q is shown: %q, %q", before, a, b)
			}
		}
	})
}
