package vt

// modes are the modes that programs set and reset.
type modes struct {
	flags    flag
	tracking int // requested mouse events: 0, 9, 1000, 1002 or 1003
	encoding int // mouse encoding: 0, 1005, 1006, 1015 or 1016
}

type flag uint32

const (
	insertMode       flag = 1 << iota // IRM
	newLine                           // LNM
	appCursor                         // DECCKM
	reverseVideo                      // DECSCNM
	origin                            // DECOM
	autoWrap                          // DECAWM
	reverseWrap                       // 45
	appKeypad                         // DECNKM, and ESC = and ESC >
	leftRightMargins                  // DECLRMM
	hiddenCursor                      // DECTCEM, inverted
	altScreen                         // 47, 1047, 1049
	focusEvents
	altScroll
	bracketedPaste
	synchronized
)

func newModes() modes { return modes{flags: autoWrap} }

// on reports whether any of the modes is on.
func (m *modes) on(f flag) bool { return m.flags&f != 0 }

func (m *modes) set(f flag, on bool) {
	if on {
		m.flags |= f
	} else {
		m.flags &^= f
	}
}

// privateFlags are the DEC private modes that only set a flag.
var privateFlags = map[int]flag{
	1:    appCursor,
	5:    reverseVideo,
	7:    autoWrap,
	45:   reverseWrap,
	66:   appKeypad,
	1004: focusEvents,
	1007: altScroll,
	2004: bracketedPaste,
	2026: synchronized,
}

func (s *Screen) setPrivateMode(n int, on bool) {
	switch n {
	case 2:
		if on {
			s.sets.g = [4]byte{}
		}
	case 6:
		s.modes.set(origin, on)
		s.goTo(0, 0)
	case 12:
		s.style.Blink = on
	case 25:
		s.modes.set(hiddenCursor, !on)
	case 69:
		s.modes.set(leftRightMargins, on)
		s.resetLeftRight()
	case 9, 1000, 1002, 1003:
		s.modes.tracking = 0
		if on {
			s.modes.tracking = n
		}
	case 1005, 1006, 1015, 1016:
		s.modes.encoding = 0
		if on {
			s.modes.encoding = n
		}
	case 47, 1047:
		s.switchScreen(on)
	case 1048:
		if on {
			s.saveCursor()
		} else {
			s.restoreCursor()
		}
	case 1049:
		if on {
			s.saveCursor()
		}
		s.switchScreen(on)
		if !on {
			s.restoreCursor()
		}
	default:
		s.modes.set(privateFlags[n], on)
	}
}

// switchScreen switches to the alternate screen, which is then blank, or back.
// The cursor stays where it is; each screen has its own margins and tabs.
func (s *Screen) switchScreen(alt bool) {
	if alt == (s.on == &s.alt) {
		return
	}
	s.modes.set(altScreen, alt)
	if !alt {
		s.on = &s.main
		s.confine()
		return
	}
	s.main.row = s.y
	if s.alt.lines == nil {
		s.alt.lines = newLines(s.rows, s.cols)
	}
	s.alt.reset(s.rows, s.cols, s.blank())
	s.on = &s.alt
}

// CursorStyle describes how the cursor is drawn. The zero value is a steady
// block.
type CursorStyle struct {
	Shape string `json:"shape,omitempty"` // "": block; "underline" or "bar"
	Blink bool   `json:"blink,omitempty"`
}

// setCursorStyle is DECSCUSR. Its default is the initial style of a screen.
func (s *Screen) setCursorStyle(n int) {
	if n > 6 {
		return
	}
	s.style = CursorStyle{Blink: n%2 == 1}
	switch n {
	case 3, 4:
		s.style.Shape = "underline"
	case 5, 6:
		s.style.Shape = "bar"
	}
}

// number returns the DECSCUSR parameter of a style.
func (c CursorStyle) number() int {
	n := 2
	switch c.Shape {
	case "underline":
		n = 4
	case "bar":
		n = 6
	}
	if c.Blink {
		n--
	}
	return n
}
