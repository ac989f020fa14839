// Package integration holds the tests that drive whole clusters the way applications do, with pgx
// and psql, and that check on the nodes directly what became of every row.
package integration
