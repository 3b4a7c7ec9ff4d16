package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// Code is the stable name of an error. Clients switch on it; the JSON-RPC
// number sent with it is for JSON-RPC libraries.
type Code string

// The error codes of the contract.
const (
	CodeParseError         Code = "PARSE_ERROR"
	CodeInvalidRequest     Code = "INVALID_REQUEST"
	CodeMethodNotFound     Code = "METHOD_NOT_FOUND"
	CodeInvalidParams      Code = "INVALID_PARAMS"
	CodeInternal           Code = "INTERNAL"
	CodeMaxSessions        Code = "MAX_SESSIONS_REACHED"
	CodeShellNotFound      Code = "SHELL_NOT_FOUND"
	CodeCwdNotFound        Code = "CWD_NOT_FOUND"
	CodeShellCrashed       Code = "SHELL_CRASHED"
	CodeSessionNotFound    Code = "SESSION_NOT_FOUND"
	CodeExecNotFound       Code = "EXEC_NOT_FOUND"
	CodeSessionBusy        Code = "SESSION_BUSY"
	CodeSessionTerminated  Code = "SESSION_TERMINATED"
	CodeOutputGone         Code = "OUTPUT_GONE"
	CodeUnauthorized       Code = "UNAUTHORIZED"
	CodeForbidden          Code = "FORBIDDEN"
	CodeRuntimeNotFound    Code = "RUNTIME_NOT_FOUND"
	CodeRuntimeUnavailable Code = "RUNTIME_UNAVAILABLE"
	CodeLimitsUnavailable  Code = "LIMITS_UNAVAILABLE"
	CodeShuttingDown       Code = "SHUTTING_DOWN"
	CodeSessionHeld        Code = "SESSION_HELD"
	CodeSessionUnreadable  Code = "SESSION_UNREADABLE"
	CodeInputFull          Code = "INPUT_FULL"
)

// numbers holds the JSON-RPC error numbers. JSON-RPC fixes the first five; the
// others count down from the start of the server-defined range and never change
// once published.
var numbers = map[Code]int{
	CodeParseError:         -32700,
	CodeInvalidRequest:     -32600,
	CodeMethodNotFound:     -32601,
	CodeInvalidParams:      -32602,
	CodeInternal:           -32603,
	CodeMaxSessions:        -32001,
	CodeShellNotFound:      -32002,
	CodeCwdNotFound:        -32003,
	CodeShellCrashed:       -32004,
	CodeSessionNotFound:    -32005,
	CodeExecNotFound:       -32006,
	CodeSessionBusy:        -32007,
	CodeSessionTerminated:  -32008,
	CodeOutputGone:         -32009,
	CodeUnauthorized:       -32010,
	CodeForbidden:          -32011,
	CodeRuntimeNotFound:    -32012,
	CodeRuntimeUnavailable: -32013,
	CodeLimitsUnavailable:  -32014,
	CodeShuttingDown:       -32015,
	CodeSessionHeld:        -32016,
	CodeSessionUnreadable:  -32017,
	CodeInputFull:          -32018,
}

// Codes returns every error code of the contract, for documentation and tests.
func Codes() map[Code]int { return maps.Clone(numbers) }

// Error is the only error type that crosses the wire. Message says what is
// wrong, Hint names the next call to make (it is written for a model), and
// Details carries facts under stable names. Cause is for errors.Is and
// errors.As in the process where the error occurred, and is never sent.
type Error struct {
	Code    Code
	Message string
	Hint    string
	Details map[string]any
	Cause   error
}

// Errorf returns an Error with a formatted message; %w sets its Cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// With adds one detail and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[name] = value
	return e
}

// Error returns the code, the message and the hint in one line.
func (e *Error) Error() string {
	if e.Hint == "" {
		return string(e.Code) + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Message + " (" + e.Hint + ")"
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// AsError returns err as an *Error. Any other error becomes INTERNAL.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), Cause: err}
}

// IsCode reports whether err is an *Error with the given code.
func IsCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// wireError is the JSON-RPC error object.
type wireError struct {
	Number  int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

// MarshalJSON writes the JSON-RPC error object. Its data holds the stable name,
// the hint and the details.
func (e *Error) MarshalJSON() ([]byte, error) {
	data := make(map[string]any, len(e.Details)+2)
	maps.Copy(data, e.Details)
	data["code"] = e.Code
	if e.Hint != "" {
		data["hint"] = e.Hint
	}
	number, ok := numbers[e.Code]
	if !ok {
		number = numbers[CodeInternal]
	}
	return json.Marshal(wireError{Number: number, Message: e.Message, Data: data})
}

// UnmarshalJSON reads the output of MarshalJSON, and any other JSON-RPC error
// object.
func (e *Error) UnmarshalJSON(b []byte) error {
	var w wireError
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Error{Code: CodeInternal, Message: w.Message}
	for code, number := range numbers {
		if number == w.Number {
			e.Code = code
		}
	}
	if name, ok := w.Data["code"].(string); ok {
		e.Code = Code(name)
	}
	if hint, ok := w.Data["hint"].(string); ok {
		e.Hint = hint
	}
	delete(w.Data, "code")
	delete(w.Data, "hint")
	if len(w.Data) > 0 {
		e.Details = w.Data
	}
	return nil
}
