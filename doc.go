// Package pgshoal holds no code: the product is the command in cmd/pgshoal and the packages beside
// this file. It exists for the tests that hold for the whole repository.
package pgshoal
