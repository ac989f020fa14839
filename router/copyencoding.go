package router

import (
	"bytes"
	"context"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/copyrows"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// lastServerEncoding is the number of the last encoding in which every byte of a longer character has its
// high bit set. Rows and fields of such data are cut by ASCII characters alone.
const lastServerEncoding = 34

// copyData says in which encoding the data of a COPY is.
type copyData struct {
	keys string // the encoding that keys must be converted from; "" when they are as the server has them
	// whole is the encoding that all data is converted from before it is cut, as PostgreSQL does: a byte of its characters
	// can look like a delimiter. "" when there is no such danger.
	whole string
}

// copyEncoding settles in which encoding the data of a COPY is; what the splitter needs to know is set.
func (s *session) copyEncoding(opts *copyrows.Options) (copyData, error) {
	if s.encodings.server == asciiEncoding {
		return copyData{}, nil
	}
	conn, err := s.router.service(context.Background(), s.router.view.Load().m.Home, s.database)
	if err != nil {
		return copyData{}, err
	}
	defer s.router.pool.Release(conn)
	rows, err := conn.Query(context.Background(), "SELECT e, pg_catalog.pg_encoding_to_char(e) FROM pg_catalog.pg_char_to_encoding("+plan.QuoteLiteral(opts.Encoding)+") e")
	if err != nil {
		return copyData{}, err
	}
	number, name := atoi(rows[0][0]), string(rows[0][1])
	if name == "" || name == asciiEncoding { // no encoding at all is the nodes' to complain about
		return copyData{}, nil
	}
	data := copyData{keys: name}
	if number > lastServerEncoding && opts.Format != copyrows.Binary {
		data.whole, name = name, s.encodings.server
		opts.Encoding = name
	}
	if name != utf8Encoding {
		if err := onlyASCII(opts, name); err != nil {
			return copyData{}, err
		}
		opts.Encoding = asciiEncoding // the splitter takes bytes as they are
	}
	if name == s.encodings.server {
		data.keys = ""
	}
	return data, nil
}

// onlyASCII refuses what the splitter would compare with data of another encoding.
func onlyASCII(opts *copyrows.Options, encoding string) error {
	texts := []string{}
	for _, marker := range []*string{opts.Null, opts.Default} {
		if marker != nil {
			texts = append(texts, *marker)
		}
	}
	if opts.Header == copyrows.MatchHeader {
		texts = append(texts, opts.Columns...)
	}
	for _, text := range texts {
		if !sqltext.IsASCII(text) {
			return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "COPY into a distributed or reference table cannot look for %q in encoding %s", text, encoding).
				WithHint("Send the data in UTF8, with the option ENCODING 'UTF8'.")
		}
	}
	return nil
}

// recoded is row for data in another encoding than the server's: keys are converted as the node will.
func (r *rowSender) recoded(data []byte, key [][]byte) error {
	if r.data.keys == "" || r.distribution == nil {
		return r.row(data, key)
	}
	for i, k := range key {
		if sqltext.IsASCII(k) || r.binary && !isText(r.copy.Pin.Keys[i].Type) {
			continue
		}
		text, err := r.session.recode(context.Background(), k, r.data.keys, r.session.encodings.server)
		if err != nil {
			return r.keyError(err)
		}
		key[i] = text
	}
	return r.row(data, key)
}

func isText(t keyspace.Type) bool {
	return t == keyspace.Text || t == keyspace.Varchar || t == keyspace.Bpchar
}

// convertAt is how much data is converted at once.
const convertAt = 64 << 10

// write takes data of the client.
func (r *rowSender) write(data []byte) error {
	if r.data.whole == "" {
		return r.splitter.Write(data, r.recoded)
	}
	r.pending = append(r.pending, data...)
	if len(r.pending) < convertAt {
		return nil
	}
	// Bytes below the digits are characters of their own in all these encodings, so that nothing is cut in two.
	end := bytes.LastIndexFunc(r.pending, func(c rune) bool { return c < '0' }) + 1
	return r.convert(end)
}

// convert passes the first bytes of the pending data on as the server has them.
func (r *rowSender) convert(end int) error {
	if end == 0 {
		return nil
	}
	s := r.session
	text, err := s.recode(context.Background(), r.pending[:end], r.data.whole, s.encodings.server)
	if err != nil {
		return r.keyError(err)
	}
	r.pending = r.pending[:copy(r.pending, r.pending[end:])]
	return r.splitter.Write(text, r.recoded)
}

// close takes the end of the data.
func (r *rowSender) close() error {
	if err := r.convert(len(r.pending)); err != nil {
		return err
	}
	return r.splitter.Close(r.recoded)
}

// copyText is the COPY that nodes get, in the encoding that its data has by then.
func (s *session) copyText(text string, data copyData) (string, error) {
	if data.whole == "" {
		return text, nil
	}
	stmts, err := analyze.Parse(text)
	if err != nil {
		return "", err
	}
	tree := stmts[0].Tree.GetCopyStmt()
	tree.Options = slices.DeleteFunc(tree.Options, func(o *pg.Node) bool { return o.GetDefElem().GetDefname() == "encoding" })
	tree.Options = append(tree.Options, pg.MakeSimpleDefElemNode("encoding", pg.MakeStrNode(s.encodings.server), -1))
	return analyze.Deparse(stmts[0].Tree)
}
