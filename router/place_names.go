package router

import (
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/pgwire"
)

// splitNames reads 'a, "B c"' or an array of names. A name without quotes stays as it is written.
func splitNames(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		names, err := readArray(text)
		if err != nil {
			return nil, err
		}
		return names, checkNames(names, text)
	}
	var names []string
	var name strings.Builder
	quoted, wasQuoted := false, false
	end := func() {
		n := name.String()
		if !wasQuoted {
			n = strings.TrimSpace(n)
		}
		names = append(names, n)
		name.Reset()
		wasQuoted = false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && quoted && i+1 < len(text) && text[i+1] == '"':
			name.WriteByte(c)
			i++
		case c == '"':
			if !quoted && !wasQuoted {
				name.Reset() // blanks before it
			}
			quoted, wasQuoted = !quoted, true
		case c == ',' && !quoted:
			end()
		case wasQuoted && !quoted && c == ' ':
		default:
			name.WriteByte(c)
		}
	}
	if quoted {
		return nil, pgwire.Errorf("42601", "unterminated quoted identifier in %q", text)
	}
	end()
	return names, checkNames(names, text)
}

func checkNames(names []string, text string) error {
	for i, n := range names {
		if n == "" {
			return pgwire.Errorf("42601", "zero-length column name in %q", text)
		}
		if slices.Contains(names[:i], n) {
			return pgwire.Errorf("42701", "column %q is named twice in the key", n)
		}
	}
	return nil
}

// readArray reads a one-dimensional array of names as PostgreSQL writes it.
func readArray(text string) ([]string, error) {
	var out []string
	body := text[1 : len(text)-1]
	for i := 0; i <= len(body) && body != ""; {
		var b strings.Builder
		quoted := false
		if i < len(body) && body[i] == '"' {
			quoted = true
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' && i+1 < len(body) {
					i++
				}
				b.WriteByte(body[i])
			}
			i++
		}
		for ; i < len(body) && body[i] != ','; i++ {
			b.WriteByte(body[i])
		}
		value := b.String()
		if !quoted {
			value = strings.TrimSpace(value)
		}
		if !quoted && (strings.EqualFold(value, "null") || strings.ContainsAny(value, "{}")) {
			return nil, pgwire.Errorf("22P02", "malformed list of names: %q", text)
		}
		out = append(out, value)
		i++
	}
	return out, nil
}
