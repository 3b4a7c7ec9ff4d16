package vt

// sgr is SGR: it sets the appearance of characters printed from now on.
func (s *Screen) sgr(q *sequence) {
	p := &s.pen
	for i := 0; i < q.n; i++ {
		// Sub-parameters of this one are q.params[i+1 : end].
		end := i + 1
		for end < q.n && q.sub>>end&1 == 1 {
			end++
		}
		v := q.params[i]
		switch {
		case v == 0:
			link, id := s.extra.link, s.extra.id
			keep := p.attrs & protected
			*p = pen{attrs: keep}
			s.extra = extra{link: link, id: id}
			if link != "" {
				s.setExtra()
			}
		case v == 1:
			p.attrs |= bold
		case v == 2:
			p.attrs |= dim
		case v == 3:
			p.attrs |= italic
		case v == 4:
			style := int32(1)
			if end > i+1 && q.params[i+1] >= 0 && q.params[i+1] <= 5 {
				style = q.params[i+1]
			}
			p.setUnderline(uint32(style))
		case v == 5 || v == 6:
			p.attrs |= blink
		case v == 7:
			p.attrs |= inverse
		case v == 8:
			p.attrs |= invisible
		case v == 9:
			p.attrs |= strike
		case v == 21:
			p.setUnderline(2)
		case v == 22:
			p.attrs &^= bold | dim
		case v == 23:
			p.attrs &^= italic
		case v == 24:
			p.setUnderline(0)
		case v == 25:
			p.attrs &^= blink
		case v == 27:
			p.attrs &^= inverse
		case v == 28:
			p.attrs &^= invisible
		case v == 29:
			p.attrs &^= strike
		case v >= 30 && v <= 37:
			p.fg = colorIndexed | uint32(v-30)
		case v == 39:
			p.fg = colorDefault
		case v >= 40 && v <= 47:
			p.bg = colorIndexed | uint32(v-40)
		case v == 49:
			p.bg = colorDefault
		case v == 53:
			p.attrs |= overline
		case v == 55:
			p.attrs &^= overline
		case v == 38 || v == 48 || v == 58:
			color, next, ok := q.color(i, end)
			if ok {
				switch v {
				case 38:
					p.fg = color
				case 48:
					p.bg = color
				case 58:
					s.extra.underline = color
					s.setExtra()
				}
			}
			i = next - 1
			continue
		case v == 59:
			s.extra.underline = colorDefault
			s.setExtra()
		case v >= 90 && v <= 97:
			p.fg = colorIndexed | uint32(v-90+8)
		case v >= 100 && v <= 107:
			p.bg = colorIndexed | uint32(v-100+8)
		}
		i = end - 1
	}
}

// color parses what follows a 38, 48 or 58 at i, whose sub-parameters end before
// end, and returns the index to continue at.
//
//	38:5:n   38;5;n   38:2::r:g:b   38:2:r:g:b   38;2;r;g;b
func (q *sequence) color(i, end int) (color uint32, next int, ok bool) {
	value := func(k int) uint32 { return uint32(max(q.params[k], 0)) & 0xff }
	if end > i+1 {
		args := q.params[i+1 : end]
		at := i + 2 // the first value
		switch {
		case args[0] == 5 && len(args) > 1:
			return colorIndexed | value(at), end, true
		case args[0] == 2 && len(args) > 1:
			if len(args) > 4 {
				at++ // after the color space
			}
			var rgb uint32
			for k := range 3 {
				rgb <<= 8
				if at+k < end {
					rgb |= value(at + k)
				}
			}
			return colorRGB | rgb, end, true
		}
		return 0, end, false
	}
	if i+1 >= q.n {
		return 0, q.n, false
	}
	switch q.params[i+1] {
	case 5:
		if i+2 < q.n {
			return colorIndexed | value(i+2), i + 3, true
		}
	case 2:
		if i+4 < q.n {
			return colorRGB | value(i+2)<<16 | value(i+3)<<8 | value(i+4), i + 5, true
		}
	default:
		return 0, i + 2, false
	}
	return 0, q.n, false
}
