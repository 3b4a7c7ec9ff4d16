// Package spelling suggests a known name for a misspelled one.
package spelling

import "strings"

// maxName is longer than any known name. Longer text is not a typing error.
const maxName = 100

// Closest returns the known name that a wrong one was probably meant to be. It ignores
// case and separators, so that exec_run and Exec/Run match exec.run.
func Closest(name string, known []string) (string, bool) {
	if len(name) > maxName {
		return "", false
	}
	// Two typing errors, but fewer in a short name, where they would make the match a
	// guess.
	best, limit := "", min(2, len(name)/3)
	for _, k := range known {
		if d := distance(normalize(name), normalize(k)); d <= limit {
			best, limit = k, d-1
		}
	}
	return best, best != ""
}

func normalize(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("._/:- ", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// distance counts the insertions, deletions and replacements between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
