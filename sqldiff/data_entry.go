package sqldiff

import "fmt"

const (
	entryWarehouses = 8
	entryDistricts  = 2
	entryCustomers  = 6
	entryItems      = 30
)

// entry fills the order-entry tables: warehouses without orders yet.
func (r Rows) entry(d dice) {
	for i := range entryItems {
		r.add("entry.item", i+1, fmt.Sprintf("item %d", i+1), d.between(1, 100))
	}
	for w := 1; w <= entryWarehouses; w++ {
		r.add("entry.warehouse", w, fmt.Sprintf("warehouse %d", w), fmt.Sprintf("0.%04d", d.IntN(2000)), "0.00")
		for i := range entryItems {
			r.add("entry.stock", w, i+1, 20+d.IntN(80), 0, 0, 0)
		}
		for district := 1; district <= entryDistricts; district++ {
			r.add("entry.district", w, district, fmt.Sprintf("0.%04d", d.IntN(2000)), "0.00", 1)
			for c := 1; c <= entryCustomers; c++ {
				r.add("entry.customer", w, district, c, d.pick("BAR", "OUGHT", "ABLE", "PRI"), fmt.Sprintf("0.%04d", d.IntN(5000)), "0.00", "0.00", 0)
			}
		}
	}
}
