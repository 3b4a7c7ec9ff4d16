package cli

import (
	"os"
	"path/filepath"
	"strings"
)

// removerCommand is the hidden subcommand that removes the directory in which this
// program was delivered to a place: nothing else in a container may be able to.
const removerCommand = "be-remover"

// removeDelivered removes the directory of this program. It removes nothing that was
// not made by a delivery.
func removeDelivered() int {
	program, err := os.Executable()
	if err != nil {
		return 1
	}
	dir := filepath.Dir(program)
	if !strings.HasPrefix(filepath.Base(dir), ".trl-place-") || os.RemoveAll(dir) != nil {
		return 1
	}
	return 0
}
