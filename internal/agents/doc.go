// Package agents runs the real agent command lines (Claude Code, Codex, Gemini
// CLI) with TRL as their terminal, and asks what reaches the model.
//
// The model is a script: a list of turns, each a function of what the agent has
// put before it, as a model's next step is. Everything else is real: the agent,
// `trl mcp`, the daemon, the shells. All of it runs in a network of its own that
// leads nowhere, with a private home, so nothing of the person whose machine it
// is can be used or told. There are only tests here.
package agents
