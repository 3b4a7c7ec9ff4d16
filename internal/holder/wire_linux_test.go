package holder

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that dies without having read everything has still sent what it sent.
func TestMessagesOfADeadPeerAreRead(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	unread := record{kind: gotHello}
	last := record{kind: wantExitMode, value: 3, flags: uint8(Stop)}
	if err := errors.Join(send(pair[0], unread.append(nil), -1), send(pair[1], last.append(nil), -1), unix.Close(pair[1])); err != nil {
		t.Fatal(err)
	}
	in := &packetReader{conn: pair[0]}
	var got []record
	for range 5 { // a reset, the record and EOF
		err = in.next(func(r record, _ int) error {
			got = append(got, r)
			return nil
		})
		if err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) || len(got) != 1 || got[0] != last {
		t.Errorf("got %+v, %v; want %+v, EOF", got, err, last)
	}
}
