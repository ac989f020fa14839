package sqldiff

import (
	"fmt"
	"strings"
	"time"
)

const (
	tpchSuppliers = 20
	tpchParts     = 80
	tpchCustomers = 60
	tpchOrders    = 300
)

var tpchNations = strings.Fields(`ALGERIA:0 ARGENTINA:1 BRAZIL:1 CANADA:1 EGYPT:4 ETHIOPIA:0 FRANCE:3 GERMANY:3 INDIA:2 INDONESIA:2 IRAN:4 IRAQ:4
	JAPAN:2 JORDAN:4 KENYA:0 MOROCCO:0 MOZAMBIQUE:0 PERU:1 CHINA:2 ROMANIA:3 SAUDI_ARABIA:4 VIETNAM:2 RUSSIA:3 UNITED_KINGDOM:3 UNITED_STATES:1`)

// analytics fills the tables of the decision-support queries; its values are few, so that every query
// finds rows at this scale.
func (r Rows) analytics(d dice) {
	for i, name := range []string{"AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"} {
		r.add("tpch.region", i, name, "a part of the world")
	}
	for i, n := range tpchNations {
		name, region, _ := strings.Cut(n, ":")
		r.add("tpch.nation", i, strings.ReplaceAll(name, "_", " "), region, d.pick("calm", "busy"))
	}
	for i := range tpchSuppliers {
		nation := d.IntN(25)
		if i%3 == 0 {
			nation = []int{3, 6, 7, 12, 20}[i/3%5]
		}
		r.add("tpch.supplier", i+1, fmt.Sprintf("Supplier#%09d", i+1), d.pick("North", "South")+" road", nation, phone(d, nation), d.between(-900, 9000),
			d.pick("all fine", "Customer had many Complaints", "slow but careful"))
	}
	for i := range tpchParts {
		r.add("tpch.part", i+1, d.pick("forest", "green", "almond")+" "+d.pick("linen", "green", "ivory"), fmt.Sprintf("Manufacturer#%d", 1+d.IntN(5)),
			fmt.Sprintf("Brand#%d%d", 1+d.IntN(2), 1+d.IntN(3)), d.pick("STANDARD", "PROMO", "ECONOMY", "MEDIUM POLISHED")+" "+d.pick("ANODIZED STEEL", "BURNISHED BRASS", "BRASS"),
			1+d.IntN(20), d.pick("SM CASE", "SM BOX", "MED BAG", "LG CASE", "JUMBO PKG"), d.between(900, 2000), "fine")
		for _, s := range d.Perm(tpchSuppliers)[:3] {
			r.add("tpch.partsupp", i+1, s+1, 1+d.IntN(9999), d.between(1, 1000), d.pick("even", "odd"))
		}
	}
	for i := range tpchCustomers {
		nation := d.IntN(25)
		r.add("tpch.customer", i+1, fmt.Sprintf("Customer#%09d", i+1), d.pick("East", "West")+" street", nation, phone(d, nation), d.between(-900, 9000),
			d.pick("BUILDING", "AUTOMOBILE", "MACHINERY", "HOUSEHOLD", "FURNITURE"), d.pick("special requests sleep", "regular"))
	}
	for i := range tpchOrders {
		r.analyticsOrder(d, i+1)
	}
}

func phone(d dice, nation int) string {
	return fmt.Sprintf("%d-%03d-%03d-%04d", 10+nation, d.IntN(1000), d.IntN(1000), d.IntN(10000))
}

func (r Rows) analyticsOrder(d dice, key int) {
	date := time.Date(1992+d.IntN(7), time.Month(1+d.IntN(12)), 1+d.IntN(28), 0, 0, 0, 0, time.UTC)
	day := func(after int) string { return date.AddDate(0, 0, after).Format(time.DateOnly) }
	// Every third customer never orders.
	customer := 1 + d.IntN(tpchCustomers)
	if customer%3 == 0 {
		customer--
	}
	r.add("tpch.orders", key, customer, d.pick("O", "F", "F", "P"), d.between(1000, 200000), day(0), d.pick("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"),
		fmt.Sprintf("Clerk#%09d", d.IntN(10)), 0, d.pick("special packages requests", "plain", "quick"))
	for line := range 1 + d.IntN(6) {
		ship := 1 + d.IntN(120)
		r.add("tpch.lineitem", key, 1+d.IntN(tpchParts), 1+d.IntN(tpchSuppliers), line+1, fmt.Sprintf("%d.00", 1+d.IntN(60)), d.between(900, 90000),
			fmt.Sprintf("0.%02d", d.IntN(11)), fmt.Sprintf("0.%02d", d.IntN(9)), d.pick("R", "A", "N"), d.pick("O", "F"), day(ship), day(30+d.IntN(60)), day(ship+1+d.IntN(30)),
			d.pick("DELIVER IN PERSON", "COLLECT COD", "NONE"), d.pick("MAIL", "SHIP", "AIR", "AIR REG", "TRUCK"), "x")
	}
}
