package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"
)

// timeLayout is RFC 3339 in UTC with exactly three digits of milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is a point in time on the wire.
type Time struct{ time.Time }

// MarshalJSON writes RFC 3339 in UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, len(timeLayout)+2)), nil
}

// append appends t in timeLayout, for years of four digits. AppendFormat would
// parse the layout each time.
func (t Time) append(b []byte) []byte {
	u := t.UTC()
	year, month, day := u.Date()
	if year < 0 || year > 9999 {
		return u.AppendFormat(b, `"`+timeLayout+`"`)
	}
	hour, minute, second := u.Clock()
	b = appendDigits(append(b, '"'), year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	b = appendDigits(append(b, '.'), u.Nanosecond()/1e6, 3)
	return append(b, 'Z', '"')
}

// appendDigits appends v with leading zeros to the given number of digits, at
// most four. v must fit.
func appendDigits(b []byte, v, digits int) []byte {
	b = append(b, "0000"[:digits]...)
	for at := len(b) - 1; v > 0; at-- {
		b[at] += byte(v % 10)
		v /= 10
	}
	return b
}

// UnmarshalJSON reads any RFC 3339 time.
func (t *Time) UnmarshalJSON(b []byte) error {
	v, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(b))
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	t.Time = v
	return nil
}

// Base64 is the value of an encoding field whose data is base64.
const Base64 = "base64"

// EncodeBytes returns bytes as a JSON string value and its encoding: the text
// itself and "" if they are valid UTF-8 without NUL, otherwise base64.
func EncodeBytes(b []byte) (data, encoding string) {
	if isText(b) {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), Base64
}

// isText reports whether bytes are sent as they are.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// DecodeBytes is the inverse of EncodeBytes.
func DecodeBytes(data, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(data), nil
	case Base64:
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, Errorf(CodeInvalidParams, "data is not base64: %w", err)
		}
		return b, nil
	default:
		return nil, Errorf(CodeInvalidParams, "unknown encoding").WithHint(`leave it out for text, or use "base64"`)
	}
}
