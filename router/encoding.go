package router

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/sqltext"
)

// The router works in UTF-8. What a client writes in another encoding is read by PostgreSQL itself: the
// conversion is asked for, never guessed. Texts that are passed on go as the client wrote them, since
// the node's connection has the session's client encoding; texts of the router's own are written in
// ASCII for such a connection. Keys are hashed in the server's encoding.

// The encodings that need no conversion.
const (
	utf8Encoding  = "UTF8"
	asciiEncoding = "SQL_ASCII" // bytes that nobody converts
)

// encodings is what a session must know of them.
type encodings struct {
	client, server string
	foreign        bool // texts of the client are not in UTF-8
	serverForeign  bool // texts of the server are not in UTF-8
}

// encodingChanged follows the parameters that the node reports. Descriptions of results name columns
// in the client's encoding, so plans are kept apart by it.
func (s *session) encodingChanged() {
	e := encodings{client: s.reported["client_encoding"], server: s.reported["server_encoding"]}
	if e.client != asciiEncoding && e.server != asciiEncoding {
		e.foreign, e.serverForeign = e.client != utf8Encoding, e.server != utf8Encoding
	}
	if e == s.encodings {
		return
	}
	s.encodings = e
	if s.space != nil {
		s.setSearchPath(s.searchPath)
	}
}

// readStatement is a statement of the client in UTF-8, with strings that mean the same under all settings: plans are shared.
func (s *session) readStatement(ctx context.Context, raw []byte) ([]byte, error) {
	text, err := s.readText(ctx, raw)
	if err == nil && !s.standardStrings() {
		text = sqltext.Standard(text)
	}
	return text, err
}

// readText is a text of the client in UTF-8.
func (s *session) readText(ctx context.Context, raw []byte) ([]byte, error) {
	if !s.encodings.foreign || sqltext.IsASCII(raw) {
		return raw, nil
	}
	return s.recode(ctx, raw, s.encodings.client, utf8Encoding)
}

// recode asks for a conversion through the server's encoding, the way each text of the client takes.
func (s *session) recode(ctx context.Context, text []byte, from, to string) ([]byte, error) {
	return s.router.recoded.get(recoding{s.encodings.server, from, to, string(text)}, func() ([]byte, error) {
		conn, err := s.router.service(ctx, s.router.view.Load().m.Home, s.database)
		if err != nil {
			return nil, err
		}
		defer s.router.pool.Release(conn)
		rows, err := conn.Query(ctx, "SELECT pg_catalog.encode(pg_catalog.convert_to(pg_catalog.convert_from('\\x"+
			hex.EncodeToString(text)+"', "+plan.QuoteLiteral(from)+"), "+plan.QuoteLiteral(to)+"), 'hex')")
		if err != nil {
			return nil, err
		}
		out := make([]byte, hex.DecodedLen(len(rows[0][0])))
		_, err = hex.Decode(out, rows[0][0])
		return out, err
	})
}

// recoding is a question about a text.
type recoding struct{ server, from, to, text string }

// recodings keeps answers, because applications say the same again and again.
type recodings struct {
	mu    sync.Mutex
	known map[recoding][]byte
}

const (
	maxRecodings    = 2000
	maxRecodingText = 4 << 10
)

func (r *recodings) get(q recoding, ask func() ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	answer, ok := r.known[q]
	r.mu.Unlock()
	if ok {
		return answer, nil
	}
	answer, err := ask()
	if err != nil || len(q.text) > maxRecodingText {
		return answer, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRecodings {
		r.known = map[recoding][]byte{}
	}
	r.known[q] = answer
	return answer, nil
}

// onWire is a statement for a connection: as the client wrote it if it is all that the client sent.
func (s *session) onWire(c *pool.Conn, text string) string {
	if s.encodings.foreign && c.Params["client_encoding"] == s.encodings.client && len(s.raw) > 0 &&
		trimStatement(string(s.text)) == trimStatement(text) {
		return string(s.raw)
	}
	return c.Wire(text)
}

func (s *session) sendText(c *pool.Conn, text string) {
	out := c.Stream.Out()
	*out = pgwire.AppendQuery(*out, s.onWire(c, text))
}

func trimStatement(text string) string { return strings.Trim(text, "; \t\r\n\f\v") }

// onWire is a prepared statement's text for a connection.
func (p *prepared) onWire(c *pool.Conn) string {
	if p.raw != "" && c.Params["client_encoding"] == p.rawEncoding {
		return p.raw
	}
	return c.Wire(p.text)
}

// textKey is a value of the statement's text, which is in UTF-8, as the server has it.
func (s *session) textKey(data []byte) (exec.Value, error) {
	if !s.encodings.serverForeign || sqltext.IsASCII(data) {
		return exec.Value{Data: data}, nil
	}
	data, err := s.recode(context.Background(), data, utf8Encoding, s.encodings.server)
	return exec.Value{Data: data}, err
}

// clientKey is a parameter of the client, or a value that a node computed for it, as the server has it.
func (s *session) clientKey(v exec.Value, o *plan.Operand) (exec.Value, error) {
	e := &s.encodings
	if !e.foreign && !e.serverForeign || e.client == e.server || sqltext.IsASCII(v.Data) {
		return v, nil
	}
	if v.Binary {
		switch {
		case !isText(o.From):
			return v, nil
		case o.Array:
			return v, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "a binary array of keys in client encoding %s is not supported", e.client).
				WithHint("Send the array as text, or SET client_encoding = 'UTF8'.")
		}
	}
	var err error
	v.Data, err = s.recode(context.Background(), v.Data, e.client, e.server)
	return v, err
}

// sendsAsServer reports a value that a connection's parameter can carry as it is.
func sendsAsServer(c *pool.Conn, data []byte) bool {
	client, server := c.Params["client_encoding"], c.Params["server_encoding"]
	return client == server || client == asciiEncoding || server == asciiEncoding || sqltext.IsASCII(data)
}

// canonicalBytes is canonicalOn for a connection that would convert the text and the answer.
func canonicalBytes(conn *pool.Conn, key keyspace.Type, as string, text []byte) ([]byte, error) {
	value := "pg_catalog.convert_from('\\x" + hex.EncodeToString(text) + "', pg_catalog.getdatabaseencoding())::" + as
	rows, err := conn.Query(context.Background(), "SELECT pg_catalog.encode(pg_catalog.convert_to("+
		exec.CanonicalSQL(key, "("+value+")")+", pg_catalog.getdatabaseencoding()), 'hex')")
	if err != nil || rows[0][0] == nil {
		return nil, err
	}
	return hex.AppendDecode(nil, rows[0][0])
}

// forClient is text of the router's own in the client's encoding; what that lacks becomes a question mark.
func (s *session) forClient(text string) string {
	if !s.encodings.foreign || sqltext.IsASCII(text) {
		return text
	}
	out, err := s.recode(context.Background(), []byte(text), utf8Encoding, s.encodings.client)
	if err == nil {
		return string(out)
	}
	return strings.Map(func(r rune) rune {
		if r > 127 {
			return '?'
		}
		return r
	}, text)
}

// errorForClient is an error whose texts are in UTF-8 in the client's encoding.
func (s *session) errorForClient(e *pgwire.Error) *pgwire.Error {
	if !s.encodings.foreign {
		return e
	}
	out := *e
	for _, field := range []*string{
		&out.Message, &out.Detail, &out.Hint, &out.Where, &out.InternalQuery,
		&out.Schema, &out.Table, &out.Column, &out.DataType, &out.Constraint,
	} {
		*field = s.forClient(*field)
	}
	return &out
}

// inUTF8 does work that reads names from the session's own connections while these speak UTF-8. Its
// results are for the router; its errors go to the client.
func (s *session) inUTF8(ctx context.Context, work func() error) error {
	if !s.encodings.foreign {
		return work()
	}
	before := s.settings
	utf8 := utf8Encoding
	s.settings = s.router.settings.with(before, "client_encoding", &utf8)
	err := s.syncParts(ctx)
	if err == nil {
		err = work()
	}
	s.settings = before
	if err == nil {
		return s.syncParts(ctx)
	}
	for _, p := range s.txn.parts { // a rollback takes the change of the encoding back
		p.conn.Settings = unknownSettings
	}
	var e *pgwire.Error
	if errors.As(err, &e) && !e.Own() {
		return s.errorForClient(e)
	}
	return err
}

// readValues are values in the client's encoding in UTF-8, for a text of the router's own.
func (s *session) readValues(ctx context.Context, values [][]byte) ([][]byte, error) {
	if !s.encodings.foreign {
		return values, nil
	}
	out := make([][]byte, len(values))
	for i, v := range values {
		text, err := s.readText(ctx, v)
		if err != nil {
			return nil, err
		}
		out[i] = text
	}
	return out, nil
}

// cutsSafely refuses to move rows between nodes in an encoding whose characters contain bytes that COPY and
// arrays would take for their own.
func (s *session) cutsSafely(e *plan.Exchange) error {
	switch s.encodings.client {
	case "SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "UHC", "GB18030", "JOHAB":
		if (e.Final != "" || e.Feed != nil || len(e.Steps) > 0) && s.encodings.foreign {
			return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "a statement that moves rows between nodes is not supported in client encoding %s", s.encodings.client).
				WithHint("SET client_encoding = 'UTF8' for it.")
		}
	}
	return nil
}
