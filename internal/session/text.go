package session

// plainText is output as a person reads it: escape sequences and control
// characters are gone, a line that was rewritten by carriage returns or
// backspaces shows its last form.
func plainText(b []byte) []byte {
	out := make([]byte, 0, len(b))
	var line []cell
	col := 0
	flush := func() {
		for _, c := range line {
			out = append(out, b[c.at:c.at+int32(c.n)]...)
		}
		line, col = line[:0], 0
	}
	for i := 0; i < len(b); {
		n := 1
		switch c := b[i]; {
		case c == 0x1b:
			n = escapeLen(b[i:])
		case c == '\n':
			flush()
			out = append(out, '\n')
		case c == '\r':
			col = 0
		case c == '\b':
			col = max(0, col-1)
		case c < 0x20 && c != '\t' || c == 0x7f:
		default:
			n = runeLen(b[i:])
			put := cell{at: int32(i), n: int8(n)}
			if col < len(line) {
				line[col] = put
			} else {
				line = append(line, put)
			}
			col++
		}
		i += n
	}
	flush()
	return out
}

// cell is one character of the line being written: where it is in the input.
// Inputs are bounded far below what an int32 holds.
type cell struct {
	at int32
	n  int8
}

// runeLen is the length of the character at the start of b; a byte that
// begins none is taken by itself.
func runeLen(b []byte) int {
	n := 1
	switch c := b[0]; {
	case c >= 0xf0:
		n = 4
	case c >= 0xe0:
		n = 3
	case c >= 0xc0:
		n = 2
	}
	return min(n, len(b))
}

// escapeLen is the length of the escape sequence at the start of b, or of what
// is there of it.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[': // CSI: parameters, intermediates, one final byte
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC: up to ST or BEL
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
		}
		return len(b)
	case '(', ')', '*', '+', '#', ' ', '%':
		return min(3, len(b))
	default:
		return 2
	}
}
