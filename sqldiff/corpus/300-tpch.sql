-- The 22 well-known decision-support questions, in our own wording, with constants that fit the small data.
-- 1: what was shipped, by flag and state.
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS base, sum(l_extendedprice * (1 - l_discount)) AS discounted,
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charged, avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM tpch.lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90 days'
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus;
-- 2: the cheapest supplier of a part in a region.
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_phone
FROM tpch.part, tpch.supplier, tpch.partsupp, tpch.nation, tpch.region
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size < 15 AND p_type LIKE '%BRASS' AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'EUROPE' AND ps_supplycost = (SELECT min(ps_supplycost) FROM tpch.partsupp, tpch.supplier, tpch.nation, tpch.region
    WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100;
-- 3: open orders with the highest value.
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM tpch.customer, tpch.orders, tpch.lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < '1995-03-15' AND l_shipdate > '1995-01-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10;
-- 4: late orders by priority.
SELECT o_orderpriority, count(*) FROM tpch.orders
WHERE o_orderdate >= '1993-07-01' AND o_orderdate < date '1993-07-01' + interval '12 months'
  AND EXISTS (SELECT * FROM tpch.lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority;
-- 5: sales within a nation.
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM tpch.customer JOIN tpch.orders ON c_custkey = o_custkey JOIN tpch.lineitem ON l_orderkey = o_orderkey
  JOIN tpch.supplier ON l_suppkey = s_suppkey JOIN tpch.nation ON s_nationkey = n_nationkey JOIN tpch.region ON n_regionkey = r_regionkey
WHERE r_name IN ('ASIA', 'EUROPE', 'AMERICA') AND o_orderdate >= '1992-01-01'
GROUP BY n_name ORDER BY revenue DESC;
-- 6: what small discounts cost.
SELECT sum(l_extendedprice * l_discount) AS revenue FROM tpch.lineitem
WHERE l_shipdate >= '1994-01-01' AND l_shipdate < '1996-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24;
-- 7: trade between two nations.
SELECT supp, cust, year, sum(volume) AS revenue
FROM (SELECT n1.n_name AS supp, n2.n_name AS cust, extract(year FROM l_shipdate) AS year, l_extendedprice * (1 - l_discount) AS volume
  FROM tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1, tpch.nation n2
  WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
    AND (n1.n_name IN ('FRANCE', 'CANADA') OR n2.n_name IN ('GERMANY', 'JAPAN'))) shipping
GROUP BY supp, cust, year ORDER BY supp, cust, year;
-- 8: a nation's share of a market.
SELECT year, sum(CASE WHEN nation = 'FRANCE' THEN volume ELSE 0 END) / sum(volume) AS share
FROM (SELECT extract(year FROM o_orderdate) AS year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
  FROM tpch.part, tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1, tpch.nation n2, tpch.region
  WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey
    AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey AND p_type LIKE '%STEEL') nations
GROUP BY year ORDER BY year;
-- 9: profit by nation and year.
SELECT nation, year, sum(amount) AS profit
FROM (SELECT n_name AS nation, extract(year FROM o_orderdate) AS year, l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
  FROM tpch.part, tpch.supplier, tpch.lineitem, tpch.partsupp, tpch.orders, tpch.nation
  WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey AND o_orderkey = l_orderkey
    AND s_nationkey = n_nationkey AND p_name LIKE '%green%') profits
GROUP BY nation, year ORDER BY nation, year DESC;
-- 10: customers who sent goods back.
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment
FROM tpch.customer, tpch.orders, tpch.lineitem, tpch.nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= '1993-01-01' AND o_orderdate < '1995-01-01' AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment ORDER BY revenue DESC, c_custkey LIMIT 20;
-- 11: stock that matters.
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM tpch.partsupp, tpch.supplier, tpch.nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name IN ('GERMANY', 'FRANCE')
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.01 FROM tpch.partsupp, tpch.supplier, tpch.nation
  WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name IN ('GERMANY', 'FRANCE'))
ORDER BY value DESC, ps_partkey;
-- 12: ship modes and late lines.
SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high, sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low
FROM tpch.orders JOIN tpch.lineitem ON o_orderkey = l_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
GROUP BY l_shipmode ORDER BY l_shipmode;
-- 13: how many orders customers have.
SELECT n, count(*) AS customers
FROM (SELECT c_custkey, count(o_orderkey) FROM tpch.customer LEFT JOIN tpch.orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) AS per(c_custkey, n)
GROUP BY n ORDER BY customers DESC, n DESC;
-- 14: what promotions bring.
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / sum(l_extendedprice * (1 - l_discount)) AS promo
FROM tpch.lineitem, tpch.part WHERE l_partkey = p_partkey AND l_shipdate >= '1995-01-01' AND l_shipdate < '1996-01-01';
-- 15: the best supplier.
WITH revenue AS (SELECT l_suppkey AS supplier, sum(l_extendedprice * (1 - l_discount)) AS total FROM tpch.lineitem WHERE l_shipdate >= '1996-01-01' AND l_shipdate < '1997-01-01' GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total FROM tpch.supplier, revenue WHERE s_suppkey = supplier AND total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey;
-- 16: who can supply what.
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers FROM tpch.partsupp, tpch.part
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#11' AND p_type NOT LIKE 'MEDIUM POLISHED%' AND p_size IN (1, 3, 5, 9, 14, 19)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM tpch.supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size ORDER BY suppliers DESC, p_brand, p_type, p_size;
-- 17: small orders of a part.
SELECT sum(l_extendedprice) / 7.0 AS yearly FROM tpch.lineitem, tpch.part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#12' AND l_quantity < (SELECT 0.7 * avg(l_quantity) FROM tpch.lineitem WHERE l_partkey = p_partkey);
-- 18: large orders.
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
FROM tpch.customer, tpch.orders, tpch.lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM tpch.lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 200) AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100;
-- 19: parts in certain containers.
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM tpch.lineitem, tpch.part
WHERE p_partkey = l_partkey AND l_shipinstruct = 'DELIVER IN PERSON' AND ((p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX') AND l_quantity BETWEEN 1 AND 31)
  OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG') AND l_quantity BETWEEN 10 AND 50) OR (p_brand = 'Brand#21' AND p_container = 'LG CASE' AND p_size BETWEEN 1 AND 15));
-- 20: suppliers with too much stock.
SELECT s_name, s_address FROM tpch.supplier, tpch.nation
WHERE s_suppkey IN (SELECT ps_suppkey FROM tpch.partsupp WHERE ps_partkey IN (SELECT p_partkey FROM tpch.part WHERE p_name LIKE 'forest%')
    AND ps_availqty > (SELECT 0.5 * coalesce(sum(l_quantity), 0) FROM tpch.lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= '1994-01-01'))
  AND s_nationkey = n_nationkey AND n_name IN ('CANADA', 'FRANCE', 'GERMANY', 'JAPAN')
ORDER BY s_name;
-- 21: suppliers who alone kept orders waiting.
SELECT s_name, count(*) AS waits FROM tpch.supplier, tpch.lineitem l1, tpch.orders, tpch.nation
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate
  AND EXISTS (SELECT * FROM tpch.lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
  AND NOT EXISTS (SELECT * FROM tpch.lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
  AND s_nationkey = n_nationkey AND n_regionkey IN (1, 2, 3)
GROUP BY s_name ORDER BY waits DESC, s_name LIMIT 100;
-- 22: customers who could buy again.
SELECT code, count(*), sum(c_acctbal)
FROM (SELECT substring(c_phone FROM 1 FOR 2) AS code, c_acctbal FROM tpch.customer
  WHERE substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29', '30', '18', '17', '12', '16', '22')
    AND c_acctbal > (SELECT avg(c_acctbal) FROM tpch.customer WHERE c_acctbal > 0.00) AND NOT EXISTS (SELECT * FROM tpch.orders WHERE o_custkey = c_custkey)) q
GROUP BY code ORDER BY code;
