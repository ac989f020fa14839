// Package pgwire speaks the PostgreSQL protocol at the level of bytes, to clients as a server and to
// nodes as a client, because a router that decodes less than a driver does can pass on more.
package pgwire
