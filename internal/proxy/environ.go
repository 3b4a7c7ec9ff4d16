package proxy

// Environ returns the variables that lead programs to a proxy at this address, in
// both cases. ALL_PROXY names HTTP too: some programs fail at once when it names
// SOCKS and their SOCKS library is missing. Programs that want SOCKS find it at the
// same address, as socks5h://ADDRESS.
func Environ(address string) []string {
	const direct = "localhost,127.0.0.1,::1" // the session's own loopback
	url := "http://" + address
	return []string{
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "ALL_PROXY=" + url, "NO_PROXY=" + direct,
		"http_proxy=" + url, "https_proxy=" + url, "all_proxy=" + url, "no_proxy=" + direct,
	}
}
