package fold

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// Position is a place in the two inputs of a fold: after the output of a run up to
// an offset, and after so many records. Part counts the changes of one step, a line
// or a record. The zero value is the beginning.
type Position struct {
	Run    int
	Offset int64
	Record int64
	Part   int
}

// Compare orders positions.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Run, q.Run), cmp.Compare(p.Offset, q.Offset), cmp.Compare(p.Record, q.Record), cmp.Compare(p.Part, q.Part))
}

// String returns the position as it is on the wire.
func (p Position) String() string {
	b := make([]byte, 0, 32)
	b = append(strconv.AppendInt(b, int64(p.Run), 10), '.')
	b = append(strconv.AppendInt(b, p.Offset, 10), '.')
	b = append(strconv.AppendInt(b, p.Record, 10), '.')
	return string(strconv.AppendInt(b, int64(p.Part), 10))
}

var errPosition = errors.New("not a position of a transcript")

// ParsePosition is the inverse of String; "" is the beginning.
func ParsePosition(s string) (Position, error) {
	if s == "" {
		return Position{}, nil
	}
	var n [4]int64
	parts := strings.Split(s, ".")
	if len(parts) != len(n) {
		return Position{}, errPosition
	}
	for i, part := range parts {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 || strconv.FormatInt(v, 10) != part {
			return Position{}, errPosition
		}
		n[i] = v
	}
	const maxInt = int64(^uint(0) >> 1)
	if n[0] > maxInt || n[3] > maxInt {
		return Position{}, errPosition
	}
	return Position{Run: int(n[0]), Offset: n[1], Record: n[2], Part: int(n[3])}, nil
}
