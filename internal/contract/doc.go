// Package contract generates descriptions of the wire contract for other
// languages: a JSON Schema, an OpenAPI description, and the types of the Python
// and TypeScript clients. For Go it generates the fast encoder of results.
//
// They are generated from the method table of the service, the types of the api
// and the page docs/protocol.md, whose tables hold the meaning of every field.
// Nothing is repeated here, so nothing can differ. The files are kept in the
// repository, and a test fails when one is stale:
//
//	go test ./internal/contract -run Fresh -update
//
// The package is for tests and is not linked into the daemon. It does not
// import the service, so that the service's own test of the page can use it.
package contract
