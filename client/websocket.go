package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

func dialWebSocket(ctx context.Context, addr string, opts Options) (peer.Wire, error) {
	return peer.DialWebSocket(ctx, addr, peer.WebOptions{Client: httpClient(opts), Token: opts.Token, Refusal: refusal})
}

// refusal returns the error in a response that has an unexpected status.
func refusal(res *http.Response) error {
	defer res.Body.Close()
	body, err := peer.AppendAll(nil, http.MaxBytesReader(nil, res.Body, maxRefusal))
	if err == nil {
		var answer struct{ Error *api.Error }
		if unmarshal(body, &answer) && answer.Error != nil {
			return answer.Error
		}
	}
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: HTTP status %s", ErrClosed, res.Status)
	}
	return fmt.Errorf("unexpected HTTP status %s: is it a TRL daemon?", res.Status)
}

// maxRefusal is larger than any error.
const maxRefusal = 1 << 20
