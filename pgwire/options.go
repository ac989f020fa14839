package pgwire

import (
	"slices"
	"strconv"
	"strings"
)

// backendSwitches are the command-line switches of a PostgreSQL backend in getopt's notation; a
// colon marks those with a value.
const backendSwitches = "B:bc:C:D:d:EeFf:h:ijk:lN:nOPp:r:S:sTt:v:W:-:"

// ParseOptions reads the startup parameter "options", a command line for the backend, into the
// settings that PostgreSQL would make of it, in order: "-c name=value", "--name=value" and the
// old one-letter switches. A backslash takes the next character literally.
func ParseOptions(options string) ([]Setting, error) {
	s := switches{args: splitOptions(options)}
	for s.next < len(s.args) {
		arg := s.args[s.next]
		s.next++
		switch {
		case arg == "--":
			s.operands = append(s.operands, s.args[s.next:]...)
			s.next = len(s.args)
		case len(arg) < 2 || arg[0] != '-':
			s.operands = append(s.operands, arg)
		default:
			if err := s.cluster(arg); err != nil {
				return nil, err
			}
		}
	}
	if len(s.operands) > 0 {
		return nil, errOption(s.operands[0])
	}
	return s.settings, nil
}

// splitOptions is PostgreSQL's pg_split_opts.
func splitOptions(options string) []string {
	var args []string
	var arg []byte
	escaped, inside := false, false
	for i := range len(options) {
		c := options[i]
		switch {
		case !escaped && isSpace(c):
			if inside {
				args = append(args, string(arg))
			}
			arg, inside = arg[:0], false
			continue
		case !escaped && c == '\\':
			escaped = true
		default:
			escaped = false
			arg = append(arg, c)
		}
		inside = true
	}
	if inside {
		args = append(args, string(arg))
	}
	return args
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// switches walks over a command line as getopt does.
type switches struct {
	args     []string
	next     int
	operands []string
	settings []Setting
}

// cluster reads one argument, which may hold several switches: "-sS 64" is "-s -S 64".
func (s *switches) cluster(arg string) error {
	for i := 1; i < len(arg); i++ {
		at := strings.IndexByte(backendSwitches, arg[i])
		if at < 0 || arg[i] == ':' {
			return errOption(arg)
		}
		if at+1 == len(backendSwitches) || backendSwitches[at+1] != ':' {
			s.flag(arg[i])
			continue
		}
		value := arg[i+1:]
		if value == "" {
			if s.next == len(s.args) {
				return errOption(arg)
			}
			value = s.args[s.next]
			s.next++
		}
		return s.valued(arg[i], value)
	}
	return nil
}

func (s *switches) set(name, value string) {
	s.settings = append(s.settings, Setting{name, value})
}

// flag is a switch without a value; those not named do nothing in a backend of a client.
func (s *switches) flag(c byte) {
	switch c {
	case 'e':
		s.set("datestyle", "euro")
	case 'F':
		s.set("fsync", "false")
	case 'i':
		s.set("listen_addresses", "*")
	case 'l':
		s.set("ssl", "true")
	case 'O':
		s.set("allow_system_table_mods", "true")
	case 'P':
		s.set("ignore_system_indexes", "true")
	case 's':
		s.set("log_statement_stats", "true")
	}
}

// valued is a switch with a value.
func (s *switches) valued(c byte, value string) error {
	switch c {
	case 'c', '-':
		return s.named(c, value)
	case 'd':
		s.debug(value)
	case 'f':
		return s.disable(value)
	case 't':
		return s.statistics(value)
	default:
		if name := switchSetting(c); name != "" {
			s.set(name, value)
		}
	}
	return nil
}

// switchSetting is the setting that a switch is short for, "" for one that is ignored.
func switchSetting(c byte) string {
	switch c {
	case 'B':
		return "shared_buffers"
	case 'h':
		return "listen_addresses"
	case 'k':
		return "unix_socket_directories"
	case 'N':
		return "max_connections"
	case 'p':
		return "port"
	case 'S':
		return "work_mem"
	case 'W':
		return "post_auth_delay"
	}
	return ""
}

// named is "-c name=value" or "--name=value"; a dash in the name stands for an underscore.
func (s *switches) named(c byte, option string) error {
	name, value, ok := strings.Cut(option, "=")
	if !ok {
		form := "-c "
		if c == '-' {
			form = "--"
		}
		return Fatalf(CodeSyntaxError, "%s%s requires a value", form, option)
	}
	s.set(strings.ReplaceAll(name, "-", "_"), value)
	return nil
}

func (s *switches) debug(level string) {
	digits := strings.TrimLeft(level, " \t")
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(digits[:end])
	if n == 0 {
		s.set("log_min_messages", "notice")
		return
	}
	s.set("log_min_messages", "debug"+strconv.Itoa(n))
	for i, name := range []string{"log_statement", "debug_print_parse", "debug_print_plan", "debug_print_rewritten"} {
		if n < i+2 {
			break
		}
		value := "true"
		if i == 0 {
			value = "all"
		}
		s.set(name, value)
	}
}

func (s *switches) disable(method string) error {
	const letters = "siobtnmh"
	names := [...]string{"seqscan", "indexscan", "indexonlyscan", "bitmapscan", "tidscan", "nestloop", "mergejoin", "hashjoin"}
	i := strings.Index(letters, method[:1])
	if i < 0 {
		return errOption(s.args[s.next-1])
	}
	s.set("enable_"+names[i], "false")
	return nil
}

func (s *switches) statistics(which string) error {
	known := []string{"parser", "planner", "executor"}
	i := slices.IndexFunc(known, func(name string) bool {
		return strings.HasPrefix(which, name[:2]) || name == "executor" && which[0] == 'e'
	})
	if i < 0 {
		return errOption(s.args[s.next-1])
	}
	s.set("log_"+known[i]+"_stats", "true")
	return nil
}

func errOption(arg string) error {
	return Fatalf(CodeSyntaxError, "invalid command-line argument for server process: %s", arg).
		WithHint(`Try "postgres --help" for more information.`)
}
