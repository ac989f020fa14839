package router

import (
	"strconv"
	"strings"
)

func itoa(i int) string { return strconv.Itoa(i) }

func atoi(b []byte) uint32 {
	n, _ := strconv.ParseUint(string(b), 10, 32)
	return uint32(n)
}

func firstWord(sql string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.ToUpper(word)
}
