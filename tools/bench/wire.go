package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// callTimeMax limits the time of one request.
const callTimeMax = 5 * time.Minute

// wire is one HTTP connection. It writes requests by hand, because the client shares the
// machine with the service, and net/http's client would use as much processor time as the
// service.
type wire struct {
	net.Conn
	reader *bufio.Reader
	host   string
	token  string
}

func dial(addr, token string) (*wire, error) {
	conn, err := net.Dial("tcp", addr) //nolint:noctx // an address of this machine
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, reader: bufio.NewReaderSize(conn, 16<<10), host: addr, token: token}, nil
}

// request returns the bytes of a request, which can be sent repeatedly.
func (w *wire) request(method, path string, body []byte, headers ...string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, path, w.host, len(body))
	if w.token != "" {
		fmt.Fprintf(&text, "Authorization: Bearer %s\r\n", w.token)
	}
	for _, header := range headers {
		text.WriteString(header + "\r\n")
	}
	text.WriteString("\r\n")
	text.Write(body)
	return text.Bytes()
}

// send sends a request and returns the body of the response, which must have the status.
func (w *wire) send(request []byte, status int) ([]byte, error) {
	if err := w.SetDeadline(time.Now().Add(callTimeMax)); err != nil {
		return nil, err
	}
	if _, err := w.Write(request); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != status {
		line, _, _ := bytes.Cut(request, []byte("\r\n"))
		return nil, fmt.Errorf("%s: got status %d instead of %d: %s", line, response.StatusCode, status, body)
	}
	return body, nil
}

// call sends body as JSON and decodes the response into answer, a pointer; both may be nil.
func (w *wire) call(method, path string, body any, status int, answer any) error {
	text, ok := body.([]byte)
	if body != nil && !ok {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := w.send(w.request(method, path, text), status)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(got, answer)
}
