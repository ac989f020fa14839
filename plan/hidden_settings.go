package plan

import (
	"regexp"
	"slices"
	"strings"
)

// AnySetting in Plan.Sets stands for settings whose names are not known.
const AnySetting = ""

const settingName = `(?:session\s+|local\s+)?([a-z_][a-z0-9_.$]*|)`

var (
	callsSetConfig = regexp.MustCompile(`\bset_config\s*\(\s*(?:'([^']*)')?`)
	beginsWithSet  = regexp.MustCompile(`(?:^|;|\bbegin|\bthen|\belse|\bloop)\s*(?:re)?set\s+` + settingName)
	stringWithSet  = regexp.MustCompile(`['$]\s*(?:re)?set\s+` + settingName)
)

// settingsIn are the settings that a routine's text, in lower case, may change. Other nodes must follow: a tenant that a function
// sets and a policy reads is the usual case.
func settingsIn(lower string) []string {
	var names []string
	for _, m := range callsSetConfig.FindAllStringSubmatch(lower, -1) {
		names = append(names, strings.TrimSpace(m[1]))
	}
	found := beginsWithSet.FindAllStringSubmatch(lower, -1)
	if strings.Contains(lower, "execute") {
		found = append(found, stringWithSet.FindAllStringSubmatch(lower, -1)...)
	}
	for _, m := range found {
		switch m[1] {
		case "transaction", "constraints": // of the transaction
		case "time":
			names = append(names, "timezone")
		case "names":
			names = append(names, "client_encoding")
		case "authorization":
			names = append(names, "session_authorization")
		case "characteristics":
			names = append(names, "default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable")
		case "all", "local", "session":
			names = append(names, AnySetting)
		default:
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
