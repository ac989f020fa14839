-- Order entry: warehouses that sell, with stock that other warehouses may supply.
CREATE SCHEMA entry;
CREATE TABLE entry.warehouse (w_id int PRIMARY KEY, w_name text, w_tax numeric(4,4), w_ytd numeric(12,2) NOT NULL);
CREATE TABLE entry.district (d_w_id int, d_id int, d_tax numeric(4,4), d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE entry.customer (c_w_id int, c_d_id int, c_id int, c_last text, c_discount numeric(4,4), c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE entry.history (h_w_id int NOT NULL, h_d_id int, h_c_w_id int, h_c_d_id int, h_c_id int, h_amount numeric(6,2));
CREATE TABLE entry.item (i_id int PRIMARY KEY, i_name text, i_price numeric(5,2));
CREATE TABLE entry.stock (s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_order_cnt int, s_remote_cnt int, PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE entry.orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_carrier_id int, o_ol_cnt int, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE entry.new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE entry.order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_quantity int, ol_amount numeric(8,2), ol_delivered boolean, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
