// A journal on a real Redis server: epochs that shut writers out, large batches, and what others have put there.
#include "services/manager/store/redis_journal.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/redis_server.hpp"

namespace cenote::manager::redis_journal_test {

namespace {

using namespace std::chrono_literals;
using row_map = std::map<std::string, std::string>;

redis_journal_options options_of(const cenote::test::redis_server& server) {
  return {.access = {.address = {.path = server.socket(), .place = {}}}, .prefix = "test", .timeout = 1min};
}

std::unique_ptr<redis_journal> open(redis_journal_options options) {
  return redis_journal::make(std::move(options)).value();
}

std::uint32_t raise(redis_journal& rows) {
  const auto epoch = rows.raise_epoch();
  BOOST_REQUIRE_MESSAGE(epoch.has_value(), (epoch ? std::string() : epoch.error().message()));
  return *epoch;
}

void write(redis_journal& rows, const std::vector<journal_row>& changes) {
  const auto written = rows.write(changes);
  BOOST_REQUIRE_MESSAGE(written.has_value(), (written ? std::string() : written.error().message()));
}

/// The error's code; nothing for a success.
template <class T>
std::optional<error_code> code_of(const result<T>& outcome) {
  return outcome ? std::nullopt : std::optional(outcome.error().code());
}

row_map rows_of(redis_journal& rows, row_kind kind) {
  row_map all;
  const auto read = rows.read(kind, [&](std::string_view name, std::string_view value) {
    BOOST_TEST(all.emplace(name, value).second, "a row that comes twice: " << name);
  });
  BOOST_REQUIRE_MESSAGE(read.has_value(), (read ? std::string() : read.error().message()));
  return all;
}

/// A server and a writer with an epoch.
struct world {
  world() { raise(*rows); }

  cenote::test::redis_server server;
  std::unique_ptr<redis_journal> rows = open(options_of(server));
};

/// Bytes without any line end.
std::string bytes_of(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(128 + i % 100);
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(redis_journals)

BOOST_AUTO_TEST_CASE(a_writer_of_an_earlier_epoch_is_refused_and_writes_nothing) {
  world old;
  write(*old.rows, {{.name = "e1", .value = "old"}});
  auto next = open(options_of(old.server));
  raise(*next);
  BOOST_TEST((code_of(old.rows->write(std::vector<journal_row>{{.name = "e1", .value = "late"}, {.name = "e2"}})) ==
              error_code::revoked));
  write(*next, {{.name = "e2", .value = "new"}});
  BOOST_TEST((code_of(old.rows->write(std::vector<journal_row>{{.name = "e2"}})) == error_code::revoked));
  BOOST_TEST((rows_of(*next, row_kind::extent) == row_map{{"e1", "old"}, {"e2", "new"}}));
  raise(*old.rows);
  write(*old.rows, {{.name = "e3", .value = "back"}});
  BOOST_TEST((code_of(next->write(std::vector<journal_row>{{.name = "e3"}})) == error_code::revoked));
}

BOOST_AUTO_TEST_CASE(a_reader_of_an_earlier_epoch_is_refused) {
  world old;
  write(*old.rows, {{.name = "e1", .value = "old"}});
  auto next = open(options_of(old.server));
  raise(*next);
  const auto read = old.rows->read(row_kind::extent, [](std::string_view, std::string_view) { BOOST_FAIL("a row"); });
  BOOST_TEST((code_of(read) == error_code::revoked));
}

BOOST_AUTO_TEST_CASE(a_store_that_is_older_than_the_epoch_refuses_the_next_write) {
  world old;
  const std::string before = old.server.say({"GET", "test:epoch"});
  const std::uint32_t epoch = raise(*old.rows);
  (void)old.server.say({"SET", "test:epoch", before});
  BOOST_TEST((code_of(old.rows->write(std::vector<journal_row>{{.name = "e1", .value = "x"}})) == error_code::revoked));
  BOOST_TEST(rows_of(*old.rows, row_kind::extent).empty());
  BOOST_TEST(raise(*old.rows) > epoch);
  write(*old.rows, {{.name = "e1", .value = "x"}});
}

BOOST_AUTO_TEST_CASE(a_store_without_the_last_batch_refuses_the_next_write) {
  world old;
  write(*old.rows, {{.name = "e1", .value = "a"}});
  const std::string before = old.server.say({"GET", "test:epoch"});
  write(*old.rows, {{.name = "e2", .value = "b"}});
  (void)old.server.say({"SET", "test:epoch", before});
  BOOST_TEST((code_of(old.rows->write(std::vector<journal_row>{{.name = "e3", .value = "c"}})) == error_code::revoked));
  raise(*old.rows);
  BOOST_TEST(!rows_of(*old.rows, row_kind::extent).contains("e3"));
}

BOOST_AUTO_TEST_CASE(an_epoch_is_above_those_of_the_server_of_this_process_and_the_clock) {
  const cenote::test::redis_server server;
  auto options = options_of(server);
  auto rows = open(options);
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::uint32_t first = raise(*rows);
  BOOST_TEST(first > static_cast<std::uint32_t>(now.count()));
  (void)server.say({"SET", "test:epoch", "1:4000000000:7"});
  BOOST_TEST(raise(*rows) == 4'000'000'001U);
  (void)server.say({"FLUSHALL"});
  BOOST_TEST(raise(*open(options)) == 4'000'000'002U);
  (void)server.say({"SET", "test:epoch", "1:4294967294:0"});
  BOOST_TEST(raise(*rows) == 4'294'967'295U);
  BOOST_TEST((code_of(rows->raise_epoch()) == error_code::limit_exceeded));
  BOOST_TEST(server.say({"GET", "test:epoch"}) == "1:4294967295:0");
}

BOOST_AUTO_TEST_CASE(nothing_is_written_without_an_epoch) {
  const cenote::test::redis_server server;
  auto rows = open(options_of(server));
  BOOST_TEST((code_of(rows->write(std::vector<journal_row>{{.name = "e1", .value = "x"}})) == error_code::revoked));
  BOOST_TEST(server.say({"DBSIZE"}) == "0");
}

BOOST_AUTO_TEST_CASE(a_script_that_the_server_has_forgotten_is_sent_again) {
  world one;
  write(*one.rows, {{.name = "e1", .value = "a"}});
  (void)one.server.say({"SCRIPT", "FLUSH"});
  write(*one.rows, {{.name = "e1"}, {.name = "e2", .value = "b"}});
  write(*one.rows, {{.name = "e3", .value = "c"}});
  BOOST_TEST((rows_of(*one.rows, row_kind::extent) == row_map{{"e2", "b"}, {"e3", "c"}}));
}

BOOST_AUTO_TEST_CASE(rows_of_megabytes_are_read_whole) {
  world one;
  row_map expected;
  std::vector<journal_row> changes;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "e" + std::to_string(i);
    expected[name] = bytes_of(std::size_t{100'000} * static_cast<std::size_t>(i));
    changes.push_back({.name = name, .value = expected[name]});
  }
  write(*one.rows, changes);
  BOOST_TEST((rows_of(*one.rows, row_kind::extent) == expected));
}

BOOST_AUTO_TEST_CASE(many_rows_come_once_each_also_while_their_table_shrinks) {
  world one;
  std::vector<journal_row> changes, removals;
  for (int i = 0; i < 60'000; ++i) changes.push_back({.name = "m" + std::to_string(i), .value = std::to_string(i)});
  write(*one.rows, changes);
  BOOST_TEST(rows_of(*one.rows, row_kind::mask).size() == 60'000U);
  for (int i = 0; i < 59'000; ++i) removals.push_back({.name = "m" + std::to_string(i)});
  write(*one.rows, removals);
  BOOST_TEST(rows_of(*one.rows, row_kind::mask).size() == 1'000U);
}

BOOST_AUTO_TEST_CASE(a_batch_of_several_pieces_is_written_whole_or_not_at_all) {
  const cenote::test::redis_server server;
  auto options = options_of(server);
  options.piece_rows = 3;
  options.piece_bytes = 100;
  auto rows = open(options);
  raise(*rows);
  std::vector<journal_row> changes{{.name = "r1", .value = std::string(500, 'x')}};
  for (int i = 0; i < 20; ++i) changes.push_back({.name = "e" + std::to_string(i), .value = "a"});
  changes.push_back({.name = "e3"});
  write(*rows, changes);
  BOOST_TEST(rows_of(*rows, row_kind::extent).size() == 19U);
  BOOST_TEST(rows_of(*rows, row_kind::registry).size() == 1U);
  auto next = open(options_of(server));
  raise(*next);
  for (journal_row& row : changes) row.value = "late";
  BOOST_TEST((code_of(rows->write(changes)) == error_code::revoked));
  BOOST_TEST(rows_of(*next, row_kind::extent).size() == 19U);
  BOOST_TEST(rows_of(*next, row_kind::extent)["e1"] == "a");
}

BOOST_AUTO_TEST_CASE(a_full_server_takes_nothing_of_a_batch_and_takes_it_when_there_is_room) {
  const cenote::test::redis_server server({"--maxmemory-policy", "noeviction"});
  for (const std::size_t piece_rows : {std::size_t{100'000}, std::size_t{2}}) {
    auto options = options_of(server);
    options.piece_rows = piece_rows;
    auto rows = open(options);
    raise(*rows);
    write(*rows, {{.name = "e0", .value = "before"}});
    (void)server.say({"CONFIG", "SET", "maxmemory", "1"});
    const std::vector<journal_row> batch{{.name = "e1", .value = "a"},
                                         {.name = "m1", .value = "b"},
                                         {.name = "e0"},
                                         {.name = "e2", .value = "c"},
                                         {.name = "e3", .value = "d"}};
    const auto refused = rows->write(batch);
    BOOST_REQUIRE(!refused);
    BOOST_TEST(refused.error().message().find("OOM") != std::string::npos);
    BOOST_TEST((rows_of(*open(options), row_kind::extent) == row_map{{"e0", "before"}}));
    BOOST_TEST(rows_of(*open(options), row_kind::mask).empty());
    (void)server.say({"CONFIG", "SET", "maxmemory", "0"});
    raise(*rows);
    write(*rows, batch);
    BOOST_TEST(rows_of(*rows, row_kind::extent).size() == 3U);
    (void)server.say({"FLUSHALL"});
  }
}

BOOST_AUTO_TEST_CASE(after_a_write_without_an_answer_nothing_is_taken_until_the_next_epoch) {
  cenote::test::redis_server server;
  auto options = options_of(server);
  options.timeout = 200ms;
  auto rows = open(options);
  raise(*rows);
  server.freeze();
  BOOST_TEST((code_of(rows->write(std::vector<journal_row>{{.name = "e1", .value = "late"}})) ==
              error_code::deadline_exceeded));
  server.thaw();
  BOOST_TEST((code_of(rows->write(std::vector<journal_row>{{.name = "e2", .value = "x"}})) == error_code::revoked));
  auto next = open(options_of(server));
  raise(*next);
  const row_map at_recovery = rows_of(*next, row_kind::extent);
  (void)server.say({"PING"});
  BOOST_TEST((rows_of(*next, row_kind::extent) == at_recovery));
  BOOST_TEST(!at_recovery.contains("e2"));
}

BOOST_AUTO_TEST_CASE(keys_of_another_type_are_refused_before_anything_is_written) {
  for (const std::string key : {"test:extents", "test:masks", "test:registry", "test:epoch"}) {
    world one;
    (void)one.server.say({"DEL", key});
    (void)one.server.say({"RPUSH", key, "x"});
    const auto written = one.rows->write(std::vector<journal_row>{
        {.name = "e1", .value = "a"}, {.name = "m1", .value = "b"}, {.name = "r1", .value = "c"}});
    BOOST_TEST(!written.has_value());
    const auto raised = one.rows->raise_epoch();
    BOOST_TEST((code_of(raised) == error_code::layout_mismatch));
    BOOST_TEST(raised.error().message().find(key) != std::string::npos);
    (void)one.server.say({"DEL", key});
    raise(*one.rows);
    for (const row_kind kind : {row_kind::extent, row_kind::mask, row_kind::registry}) {
      BOOST_TEST(rows_of(*one.rows, kind).empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_under_a_key_of_another_type_cannot_be_read) {
  world one;
  (void)one.server.say({"SET", "test:masks", "x"});
  const auto read = one.rows->read(row_kind::mask, [](std::string_view, std::string_view) {});
  BOOST_TEST((code_of(read) == error_code::layout_mismatch));
}

BOOST_AUTO_TEST_CASE(an_epoch_of_another_version_is_refused) {
  world one;
  for (const std::string text :
       {"2:5:0", "1::0", "1:12345678901:0", "1:5x:0", "", "5", "1:5", "1:5:", "1:-1:0", "1:5:0 "}) {
    (void)one.server.say({"SET", "test:epoch", text});
    BOOST_TEST((code_of(one.rows->raise_epoch()) == error_code::layout_mismatch), text);
    BOOST_TEST(one.server.say({"GET", "test:epoch"}) == text);
  }
}

BOOST_AUTO_TEST_CASE(fields_of_others_are_given_as_rows_and_other_keys_are_not_looked_at) {
  world one;
  write(*one.rows, {{.name = "r1", .value = "a"}});
  (void)one.server.say({"HSET", "test:registry", "", "empty"});
  (void)one.server.say({"SET", "test:other", "x"});
  (void)one.server.say({"HSET", "tes", "1", "x"});
  BOOST_TEST((rows_of(*one.rows, row_kind::registry) == row_map{{"r1", "a"}, {"r", "empty"}}));
}

BOOST_AUTO_TEST_CASE(journals_of_two_prefixes_know_nothing_of_each_other) {
  world one;
  auto options = options_of(one.server);
  options.prefix = "other";
  auto other = open(options);
  raise(*other);
  write(*other, {{.name = "e1", .value = "b"}});
  write(*one.rows, {{.name = "e1", .value = "a"}});
  BOOST_TEST((rows_of(*other, row_kind::extent) == row_map{{"e1", "b"}}));
}

BOOST_AUTO_TEST_CASE(a_row_of_no_kind_is_refused) {
  world one;
  BOOST_TEST((code_of(one.rows->write(std::vector<journal_row>{{.name = "x1", .value = "a"}})) ==
              error_code::invalid_argument));
  raise(*one.rows);
  BOOST_TEST((code_of(one.rows->write(std::vector<journal_row>{{.value = "a"}})) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_stop_ends_a_call_that_waits) {
  cenote::test::redis_server server;
  std::stop_source stop;
  auto options = options_of(server);
  options.stop = stop.get_token();
  options.timeout = 1h;
  auto rows = open(options);
  raise(*rows);
  server.freeze();
  std::thread stopper([&] { stop.request_stop(); });
  BOOST_TEST(!rows->write(std::vector<journal_row>{{.name = "e1", .value = "a"}}).has_value());
  BOOST_TEST(!rows->raise_epoch().has_value());
  stopper.join();
  server.thaw();
}

BOOST_AUTO_TEST_CASE(a_connection_that_was_cut_is_made_anew_and_the_batch_written_once) {
  world one;
  write(*one.rows, {{.name = "e1", .value = "a"}});
  (void)one.server.say({"CLIENT", "KILL", "TYPE", "normal"});
  (void)one.server.say({"SCRIPT", "FLUSH"});
  write(*one.rows, {{.name = "e2", .value = "b"}});
  BOOST_TEST((rows_of(*one.rows, row_kind::extent) == row_map{{"e1", "a"}, {"e2", "b"}}));
}

BOOST_AUTO_TEST_CASE(a_batch_whose_answer_went_with_the_connection_is_not_written_again) {
  world one;
  std::string text = one.server.say({"GET", "test:epoch"});
  BOOST_TEST_REQUIRE(text.ends_with(":0"));
  text.back() = '1';
  (void)one.server.say({"SET", "test:epoch", text});  // as the batch would have left it
  write(*one.rows, {{.name = "e1", .value = "a"}});
  BOOST_TEST(rows_of(*one.rows, row_kind::extent).empty());
  write(*one.rows, {{.name = "e2", .value = "b"}});
  BOOST_TEST((rows_of(*one.rows, row_kind::extent) == row_map{{"e2", "b"}}));
}

BOOST_AUTO_TEST_CASE(a_server_that_is_away_is_an_error_and_is_found_again) {
  cenote::test::redis_server server({"--appendonly", "yes", "--appendfsync", "always"});
  auto rows = open(options_of(server));
  const std::uint32_t epoch = raise(*rows);
  write(*rows, {{.name = "e1", .value = "a"}});
  server.kill();
  BOOST_TEST(!rows->write(std::vector<journal_row>{{.name = "e2", .value = "b"}}).has_value());
  BOOST_TEST(!rows->raise_epoch().has_value());
  server.start();
  auto raised = rows->raise_epoch();
  while (!raised) raised = rows->raise_epoch();  // it reads its file
  BOOST_TEST(*raised > epoch);
  BOOST_TEST((rows_of(*rows, row_kind::extent) == row_map{{"e1", "a"}}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::redis_journal_test
