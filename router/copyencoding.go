package router

import (
	"context"

	"github.com/pgshoal/pgshoal/copyrows"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// lastServerEncoding is the number of the last encoding in which every byte of a longer character has its
// high bit set. Rows and fields of such data are cut by ASCII characters alone.
const lastServerEncoding = 34

// copyEncoding settles in which encoding the data of a COPY is. It returns the one that keys must be
// converted from, or "" when they are as the server has them; what the splitter needs to know is set.
func (s *session) copyEncoding(opts *copyrows.Options) (string, error) {
	if s.encodings.server == asciiEncoding {
		return "", nil
	}
	conn, err := s.router.service(context.Background(), s.router.view.Load().m.Home, s.database)
	if err != nil {
		return "", err
	}
	defer s.router.pool.Release(conn)
	rows, err := conn.Query(context.Background(), "SELECT e, pg_catalog.pg_encoding_to_char(e) FROM pg_catalog.pg_char_to_encoding("+plan.QuoteLiteral(opts.Encoding)+") e")
	if err != nil {
		return "", err
	}
	number, name := atoi(rows[0][0]), string(rows[0][1])
	if name == "" || name == asciiEncoding { // no encoding at all is the nodes' to complain about
		return "", nil
	}
	if number > lastServerEncoding && opts.Format != copyrows.Binary {
		return "", pgwire.Errorf(pgwire.CodeFeatureNotSupported, "COPY into a distributed or reference table cannot read text in encoding %s", name).
			WithHint("Send the data in UTF8, with the option ENCODING 'UTF8'.")
	}
	if name != utf8Encoding {
		if err := onlyASCII(opts, name); err != nil {
			return "", err
		}
		opts.Encoding = asciiEncoding // the splitter takes bytes as they are
	}
	if name == s.encodings.server {
		return "", nil
	}
	return name, nil
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
	if r.encoding == "" || r.distribution == nil {
		return r.row(data, key)
	}
	for i, k := range key {
		if sqltext.IsASCII(k) || r.binary && !isText(r.copy.Pin.Keys[i].Type) {
			continue
		}
		text, err := r.session.recode(context.Background(), k, r.encoding, r.session.encodings.server)
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
