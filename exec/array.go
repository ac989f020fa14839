package exec

import (
	"encoding/binary"
	"errors"
)

var errArray = errors.New("malformed array")

// eachElement calls f for every element of an array in PostgreSQL's text or binary format, of
// any number of dimensions.
func eachElement(v Value, f func(Value) error) error {
	if v.Binary {
		return eachBinary(v.Data, f)
	}
	return eachText(v.Data, f)
}

func eachBinary(b []byte, f func(Value) error) error {
	if len(b) < 12 {
		return errArray
	}
	dims := int(int32(binary.BigEndian.Uint32(b)))
	if dims == 0 {
		return nil
	}
	if dims < 0 || dims > 6 || len(b) < 12+8*dims {
		return errArray
	}
	b = b[12+8*dims:]
	for len(b) > 0 {
		if len(b) < 4 {
			return errArray
		}
		n := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if n == -1 {
			if err := f(Value{Null: true}); err != nil {
				return err
			}
			continue
		}
		if n < 0 || n > len(b) {
			return errArray
		}
		if err := f(Value{Data: b[:n], Binary: true}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func eachText(b []byte, f func(Value) error) error {
	i := 0
	for i < len(b) && b[i] != '{' {
		i++ // explicit bounds like [1:3]= may stand before the braces
	}
	if i == len(b) {
		return errArray
	}
	depth := 0
	for i < len(b) {
		switch c := b[i]; c {
		case '{':
			depth++
			i++
		case '}':
			depth--
			i++
		case ',', ' ', '\t', '\n', '\r', '\v', '\f':
			i++
		case '"':
			value, next, err := quotedElement(b, i+1)
			if err != nil {
				return err
			}
			if err := f(Value{Data: value}); err != nil {
				return err
			}
			i = next
		default:
			value, next, err := bareElement(b, i)
			if err != nil {
				return err
			}
			if err := f(value); err != nil {
				return err
			}
			i = next
		}
	}
	if depth != 0 {
		return errArray
	}
	return nil
}

func quotedElement(b []byte, i int) (value []byte, next int, err error) {
	for ; i < len(b); i++ {
		switch b[i] {
		case '\\':
			if i+1 == len(b) {
				return nil, 0, errArray
			}
			i++
			value = append(value, b[i])
		case '"':
			return value, i + 1, nil
		default:
			value = append(value, b[i])
		}
	}
	return nil, 0, errArray
}

func bareElement(b []byte, i int) (v Value, next int, err error) {
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' {
		if b[i] == '\\' || b[i] == '"' || b[i] == '{' {
			return Value{}, 0, errArray
		}
		i++
	}
	end := i
	for end > start && (b[end-1] == ' ' || b[end-1] >= '\t' && b[end-1] <= '\r') {
		end--
	}
	word := b[start:end]
	if len(word) == 4 && equalFold(word, "null") {
		return Value{Null: true}, i, nil
	}
	return Value{Data: word}, i, nil
}

func equalFold(b []byte, lower string) bool {
	for i := range b {
		if b[i]|0x20 != lower[i] {
			return false
		}
	}
	return true
}
