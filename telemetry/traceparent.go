package telemetry

import (
	"bytes"
	"net/url"

	"go.opentelemetry.io/otel/propagation"
)

// sqlComment reads the keys traceparent and tracestate out of a statement's comment, as
// sqlcommenter writes it: /* key='value',key='value' */ with values in URL encoding.
//
// Only the comments that begin and end a text are looked at: that is where libraries put theirs, it
// costs little in long texts, and no string constant can be mistaken for one.
func sqlComment(text []byte) propagation.MapCarrier {
	for _, comment := range [...][]byte{trailingComment(text), leadingComment(text)} {
		if parent := commentValue(comment, "traceparent"); parent != "" {
			return propagation.MapCarrier{"traceparent": parent, "tracestate": commentValue(comment, "tracestate")}
		}
	}
	return nil
}

const blanks = " \t\r\n\f\v"

func trailingComment(text []byte) []byte {
	text = bytes.TrimRight(text, blanks+";")
	if !bytes.HasSuffix(text, []byte("*/")) {
		return nil
	}
	text = text[:len(text)-2]
	start := bytes.LastIndex(text, []byte("/*"))
	if start < 0 {
		return nil
	}
	return text[start+2:]
}

func leadingComment(text []byte) []byte {
	text, ok := bytes.CutPrefix(bytes.TrimLeft(text, blanks), []byte("/*"))
	if !ok {
		return nil
	}
	comment, _, ok := bytes.Cut(text, []byte("*/"))
	if !ok {
		return nil
	}
	return comment
}

// commentValue finds a key of a comment; it is empty when there is none.
func commentValue(comment []byte, key string) string {
	for len(comment) > 0 {
		name, rest, ok := bytes.Cut(comment, []byte("='"))
		if !ok {
			return ""
		}
		value, rest, ok := bytes.Cut(rest, []byte("'"))
		if !ok {
			return ""
		}
		if string(bytes.Trim(name, blanks+",")) == key {
			decoded, err := url.PathUnescape(string(value))
			if err != nil {
				return ""
			}
			return decoded
		}
		comment = rest
	}
	return ""
}
