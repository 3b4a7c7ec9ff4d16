// Package agents runs the real agent command lines (Claude Code, Codex, Gemini
// CLI) with TRL as their terminal, and checks what reaches the model. It runs the
// programs of docs/bash-tool.md, which are agents too, in the same way.
//
// The model is a script: a list of turns, each a function of the agent's request,
// like a model's next step. Everything else is real: the agent, `trl mcp`, the
// daemon, the shells. All of it runs in a private network namespace without a way
// out, with a private home directory, so no data of the machine's user can be used
// or sent. The package contains only tests.
package agents
