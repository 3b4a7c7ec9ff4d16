if [[ -r /etc/zsh/zshenv ]]; then . /etc/zsh/zshenv; fi
if [[ -r ${ZDOTDIR:-$HOME}/.zshenv ]]; then . ${ZDOTDIR:-$HOME}/.zshenv; fi
if [[ -r /etc/zsh/zprofile ]]; then . /etc/zsh/zprofile; fi
if [[ -r ${ZDOTDIR:-$HOME}/.zprofile ]]; then . ${ZDOTDIR:-$HOME}/.zprofile; fi
if [[ -r /etc/zsh/zlogin ]]; then . /etc/zsh/zlogin; fi
if [[ -r ${ZDOTDIR:-$HOME}/.zlogin ]]; then . ${ZDOTDIR:-$HOME}/.zlogin; fi
