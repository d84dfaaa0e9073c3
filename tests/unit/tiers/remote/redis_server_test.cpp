// The Redis backend with a real server: that is killed, stopped, emptied, full, locked, a replica, and lied to.
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "tests/unit/tiers/remote/backend_fixture.hpp"
#include "tiers/remote/value.hpp"

namespace cenote::remote {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t MiB = std::size_t{1} << 20U;

std::string key_on(const test::redis_server& server) {
  const auto keys = server.say({"KEYS", "cenote:*:*:*"});
  BOOST_REQUIRE(!keys.empty());
  return keys.substr(0, keys.find('\n'));
}

std::string epoch_key_of(const instance_identity& identity = some_identity) {
  return "cenote:" + identity_text(identity) + ":epoch";
}

std::string stamp_key() {
  return "cenote:" + identity_text(some_identity) + ":removals";
}

/// From a moment on that this gives, the node knows whether others remove something.
std::chrono::steady_clock::time_point watched_since(const test::redis_server& server, backend_under_test& node) {
  node.wait_until(true);
  node->look_for_clear(some_identity);
  while (server.say({"EXISTS", stamp_key()}) != "1") std::this_thread::yield();
  BOOST_TEST(node.put(0) == item_result::done);  // behind the look: its answer is there, too
  return std::chrono::steady_clock::now();
}

/// All connections of all nodes end; this one has its own again.
void cut_all(const test::redis_server& server, backend_under_test& node) {
  const auto before = node->counts().connections;
  server.say({"CLIENT", "KILL", "TYPE", "normal"});
  BOOST_TEST(node.counts_until([&](const auto& counts) { return counts.connections >= before + 3; }));
  node.wait_until(true);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(real_redis_servers)

BOOST_AUTO_TEST_CASE(what_was_missed_is_taken_as_long_as_nobody_removes_anything) {
  const test::redis_server server;
  backend_under_test node(server.url());
  const auto since = watched_since(server, node);
  BOOST_TEST(node.put_missed(1, since) == item_result::done);
  BOOST_TEST(node.get(1) == item_result::done);
  BOOST_TEST(node.put_missed(1, since) == item_result::done);
  BOOST_TEST(node.drop({1}).value() == 1U);
  BOOST_TEST(node.put_missed(2, since) == item_result::done);  // its own removals are known to it
  BOOST_TEST(node.put_missed(3, since - 1h) == item_result::refused);
  BOOST_TEST(node.get(3) == item_result::missing);
}

BOOST_AUTO_TEST_CASE(what_was_missed_before_another_node_removed_something_is_refused) {
  const test::redis_server server;
  backend_under_test node(server.url());
  backend_under_test other(server.url());
  const auto since = watched_since(server, node);
  BOOST_TEST(other.drop({5}).value() == 0U);
  BOOST_TEST(node.put_missed(1, since) == item_result::refused);
  cut_all(server, node);
  BOOST_TEST(node.put_missed(1, since) == item_result::refused);
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put_missed(2, std::chrono::steady_clock::now()); }));
}

BOOST_AUTO_TEST_CASE(what_was_missed_while_a_server_lost_its_memory_is_taken) {
  test::redis_server server;
  backend_under_test node(server.url());
  const auto since = watched_since(server, node);
  server.kill();
  node.wait_until(false);
  server.start();
  node.wait_until(true);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put_missed(1, since); }));
}

BOOST_AUTO_TEST_CASE(a_removal_at_a_server_that_refuses_writes_is_not_confirmed_and_takes_no_connection) {
  const test::redis_server server;
  backend_under_test node(server.url());
  (void)watched_since(server, node);
  BOOST_TEST(node.put(1) == item_result::done);
  const auto lost = node->counts().lost;
  server.say({"CONFIG", "SET", "min-replicas-to-write", "3"});
  BOOST_TEST(!node.drop({0}).has_value());
  BOOST_TEST(node.get(1) == item_result::done);
  BOOST_TEST(node->counts().lost == lost);
  server.say({"CONFIG", "SET", "min-replicas-to-write", "0"});
  BOOST_TEST(node.is_confirmed_in_time());
  BOOST_TEST(node.get(0) == item_result::missing);
}

BOOST_AUTO_TEST_CASE(removals_of_others_that_came_before_are_known_while_blocks_are_put) {
  const test::redis_server server;
  backend_under_test node(server.url());
  backend_under_test other(server.url());
  (void)watched_since(server, node);
  BOOST_TEST(other.drop({5}).value() == 0U);
  const auto after = std::chrono::steady_clock::now();
  BOOST_TEST(node.gets_to_be(item_result::done, [&] {
    BOOST_TEST(node.put(1) == item_result::done);
    return node.put_missed(2, std::chrono::steady_clock::now());
  }));
  BOOST_TEST(node.put_missed(3, after - 1s) == item_result::refused);
}

BOOST_AUTO_TEST_CASE(a_removal_of_this_node_ends_nothing_that_it_offers) {
  const test::redis_server server;
  backend_under_test node(server.url());
  const auto since = watched_since(server, node);
  std::vector<std::vector<std::byte>> all;
  std::vector<std::uint64_t> tokens;
  for (std::uint64_t i = 1; i <= 50; ++i) {
    tokens.push_back(node.begin_put_missed(i, all.emplace_back(block_of(i, 4096)), since));
    if (i % 10 == 0) BOOST_TEST(node.drop({1000 + i}).value() == 0U);
  }
  for (std::uint64_t i = 1; i <= 50; ++i) {  // a moment later those that met the removal are taken, too
    if (node.put_outcome(tokens[i - 1]) != item_result::done)
      BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put_missed(i, since); }));
  }
}

BOOST_AUTO_TEST_CASE(a_stamp_that_a_server_has_evicted_counts_as_a_removal) {
  const test::redis_server server;
  backend_under_test node(server.url());
  const auto since = watched_since(server, node);
  server.say({"DEL", stamp_key()});
  BOOST_TEST(node.put_missed(1, since) == item_result::refused);
  server.say({"LPUSH", stamp_key(), "of somebody else"});
  BOOST_TEST(node.put_missed(1, since) == item_result::refused);
  cut_all(server, node);
  BOOST_TEST(node.put_missed(1, since) == item_result::refused);
  BOOST_TEST(node.drop({1}).has_value());
}

BOOST_AUTO_TEST_CASE(a_removal_has_a_stamp_of_its_own_at_a_server_that_is_full_too) {
  const test::redis_server server({"--maxmemory-policy", "noeviction"});
  backend_under_test node(server.url());
  const auto since = watched_since(server, node);
  BOOST_TEST(node.put(1) == item_result::done);
  const std::string before = server.say({"GET", stamp_key()});
  server.say({"CONFIG", "SET", "maxmemory", "1"});
  BOOST_TEST(node.drop({1}).value() == 1U);
  BOOST_TEST(server.say({"GET", stamp_key()}) != before);
  server.say({"CONFIG", "SET", "maxmemory", "0"});
  backend_under_test other(server.url());
  other.wait_until(true);
  BOOST_TEST(other.put_missed(1, since) == item_result::refused);
}

BOOST_AUTO_TEST_CASE(what_was_removed_is_removed_once_more_at_another_run_of_a_server_unless_it_was_stored_anew) {
  test::redis_server server({"--appendonly", "yes", "--appendfsync", "always"});
  backend_under_test node(server.url());
  node.wait_until(true);
  BOOST_TEST(node.put(1) == item_result::done);
  const std::string key = key_on(server);
  BOOST_TEST(node.put(2) == item_result::done);
  BOOST_TEST(node.drop({1, 2}).value() == 2U);
  BOOST_TEST(node.put(2) == item_result::done);
  server.say({"SET", key, "put again by a node that has not heard of it"});
  cut_all(server, node);
  BOOST_TEST(node.get(2) == item_result::done);
  BOOST_TEST(server.say({"EXISTS", key}) == "1");
  server.kill();
  server.start();
  while (server.say({"EXISTS", key}) != "0") std::this_thread::yield();
  node.wait_until(true);
  BOOST_TEST(node.get(2) == item_result::done);
}

BOOST_AUTO_TEST_CASE(what_is_put_is_there_and_comes_back_also_for_another_node) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  one.wait_until(true);
  BOOST_TEST(one.get(1) == item_result::missing);
  BOOST_TEST(one.put(1) == item_result::done);
  BOOST_TEST(one.put(1) == item_result::done);
  BOOST_TEST(one.get(1) == item_result::done);
  BOOST_TEST(other.get(1) == item_result::done);
  BOOST_TEST(other.get(1, 4096, 77) == item_result::missing);
  const auto found = other.locate({0, 1, 2});
  BOOST_TEST(found.is_complete);
  BOOST_TEST((found.held == std::vector<bool>{false, true, false}));
  const auto dropped = other.drop({0, 1, 2});
  BOOST_REQUIRE(dropped.has_value());
  BOOST_TEST(*dropped == 1U);
  BOOST_TEST(one.get(1) == item_result::missing);
  BOOST_TEST(one.locate({}).is_complete);
  BOOST_TEST(one.drop({}).value() == 0U);
}

BOOST_AUTO_TEST_CASE(batches_of_large_blocks_come_back_byte_for_byte) {
  const test::redis_server server;
  backend_under_test node(server.url());
  constexpr std::uint64_t count = 24;
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::uint64_t> tokens;
  for (std::uint64_t i = 0; i < count; ++i) {
    blocks.push_back(block_of(i, 2 * MiB + i));
    tokens.push_back(node.begin_put(i, blocks.back()));
  }
  for (const auto each : tokens) BOOST_REQUIRE(node.put_outcome(each) == item_result::done);
  tokens.clear();
  std::vector<std::vector<std::byte>> got;
  for (std::uint64_t i = 0; i < count; ++i) {
    got.emplace_back(2 * MiB + i);
    tokens.push_back(node.begin_get(i, got.back()));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    BOOST_REQUIRE(node.get_outcome(tokens[i]) == item_result::done);
    BOOST_REQUIRE(got[i] == blocks[i]);
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_is_killed_and_comes_back_empty_is_served_again) {
  test::redis_server server;
  backend_under_test node(server.url());
  BOOST_TEST(node.put(1) == item_result::done);
  server.kill();
  BOOST_TEST(node.wait_until(false) != "");
  BOOST_TEST(node.get(1) == item_result::unreachable);
  BOOST_TEST(node.put(2) == item_result::unreachable);
  const auto found = node.locate({1});
  BOOST_TEST(!found.is_complete);
  BOOST_TEST(!node.drop({3}).has_value());
  server.start();
  node.wait_until(true);
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(node.put(1) == item_result::done);
  BOOST_TEST(node.get(1) == item_result::done);
}

BOOST_AUTO_TEST_CASE(
    a_removal_that_a_server_did_not_confirm_is_repeated_and_its_keys_are_not_served_until_it_is_confirmed) {
  test::redis_server server;
  backend_under_test node(server.url());
  backend_under_test other(server.url());
  BOOST_TEST(node.put(1) == item_result::done);
  BOOST_TEST(node.put(2) == item_result::done);
  server.freeze();
  BOOST_TEST(!node.drop({1}).has_value());
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(node.put(1) == item_result::refused);
  const auto found = node.locate({1});
  BOOST_TEST(found.is_complete);
  BOOST_TEST(!found.held[0]);
  server.thaw();
  BOOST_TEST(other.gets_to_be(item_result::missing, [&] { return other.get(1); }));
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(1); }));
  BOOST_TEST(node.get(1) == item_result::done);
  BOOST_TEST(other.get(2) == item_result::done);
}

BOOST_AUTO_TEST_CASE(a_removal_that_was_not_confirmed_is_carried_out_by_the_next_process) {
  test::redis_server server;
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "removals";
  backend_under_test other(server.url());
  BOOST_TEST(other.put(1) == item_result::done);
  {
    backend_under_test node(server.url(), {}, {}, {}, removal_book::open(file, 1).value());
    node.wait_until(true);
    server.kill();
    node.wait_until(false);
    BOOST_TEST(!node.drop({1}).has_value());
    BOOST_TEST((node.count_unconfirmed() == std::pair<std::uint64_t, std::uint64_t>(1, 1)));
    BOOST_TEST((node.count_unconfirmed(7) == std::pair<std::uint64_t, std::uint64_t>(0, 0)));
    BOOST_TEST(!node.clear(7).has_value());
    BOOST_TEST((node.count_unconfirmed(7) == std::pair<std::uint64_t, std::uint64_t>(1, 1)));
  }
  BOOST_TEST(removal_book::open(file, 1)->orders().size() == 1U);
  server.start();
  BOOST_TEST(other.gets_to_be(item_result::done, [&] { return other.put(1); }));
  backend_under_test next(server.url(), {}, {}, {}, removal_book::open(file, 1).value());
  BOOST_TEST(other.gets_to_be(item_result::missing, [&] { return other.get(1); }));
  BOOST_TEST(next.is_confirmed_in_time());
  BOOST_TEST(next.gets_to_be(item_result::done, [&] { return next.put(1); }));
  next->stop();
  BOOST_TEST(removal_book::open(file, 1)->orders().empty());
}

BOOST_AUTO_TEST_CASE(removals_beyond_what_is_kept_become_a_clear_of_their_instance_also_for_the_next_process) {
  test::redis_server server;
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "removals";
  backend_under_test other(server.url());
  BOOST_TEST(other.put(1) == item_result::done);
  BOOST_TEST(other.put(1, 4096, 7_identity) == item_result::done);
  {
    backend_under_test node(server.url(), {}, folder / "state", {}, removal_book::open(file, 1).value());
    node.wait_until(true);
    server.kill();
    node.wait_until(false);
    BOOST_TEST(!node.drop({1}, 7).has_value());
    std::vector<std::uint64_t> keys(removal_book::most_keys);
    std::iota(keys.begin(), keys.end(), 1);
    BOOST_TEST(!node.drop(keys).has_value());
    BOOST_TEST(node->removals().dropped == 0U);
  }
  BOOST_TEST(removal_book::open(file, 1)->orders().size() == 1U);
  server.start();
  BOOST_TEST(other.gets_to_be(item_result::done, [&] { return other.put(1); }));
  backend_under_test next(server.url(), {}, folder / "state", {}, removal_book::open(file, 1).value());
  BOOST_TEST(other.gets_to_be(item_result::missing, [&] { return other.get(1); }));
  BOOST_TEST(next.is_confirmed_in_time());
}

BOOST_AUTO_TEST_CASE(a_server_that_is_killed_in_the_middle_of_values_ends_every_token) {
  test::redis_server server;
  backend_under_test node(server.url());
  node.wait_until(true);
  auto bytes = block_of(1, 4 * MiB);
  std::vector<std::uint64_t> puts, gets;
  std::vector<std::vector<std::byte>> memory(20, std::vector<std::byte>(4 * MiB));
  BOOST_REQUIRE(node.put_outcome(node.begin_put(1, bytes)) == item_result::done);
  for (std::uint64_t i = 0; i < 20; ++i) {
    puts.push_back(node.begin_put(100 + i, bytes));
    gets.push_back(node.begin_get(1, memory[i]));
  }
  server.kill();
  for (const auto each : puts) {
    const auto what = node.put_outcome(each);
    BOOST_TEST((what == item_result::done || what == item_result::unreachable));
  }
  for (std::size_t i = 0; i < gets.size(); ++i) {
    const auto what = node.get_outcome(gets[i]);
    if (what == item_result::done) BOOST_REQUIRE(memory[i] == bytes);
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_stands_still_ends_every_token_in_time_and_writes_nothing_later) {
  test::redis_server server;
  backend_under_test node(server.url(), [](redis_options& options) { options.timeout = 300ms; });
  BOOST_TEST(node.put(1) == item_result::done);
  server.freeze();
  std::vector<std::byte> memory(4096, std::byte{0x5a});
  const auto token = node.begin_get(1, memory);
  std::vector<std::uint64_t> many;
  for (int i = 0; i < 1000; ++i) many.push_back(node.begin_get(1, memory));
  BOOST_TEST(!node.locate({1}, 20ms).is_complete);
  BOOST_TEST(node.get_outcome(token) == item_result::unreachable);
  for (const auto each : many) BOOST_REQUIRE(node.get_outcome(each) == item_result::unreachable);
  BOOST_TEST(node.put(2) == item_result::unreachable);
  const auto given_back = std::vector<std::byte>(4096, std::byte{0x33});
  memory = given_back;
  server.thaw();
  node.wait_until(true);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.get(1); }));
  BOOST_TEST((memory == given_back));
}

BOOST_AUTO_TEST_CASE(a_full_server_takes_no_more_and_still_gives) {
  const test::redis_server server({"--maxmemory", "4mb", "--maxmemory-policy", "noeviction"});
  backend_under_test node(server.url());
  std::uint64_t next = 0;
  BOOST_TEST(node.gets_to_be(item_result::full, [&] { return node.put(next++, MiB / 4); }));
  BOOST_TEST(node.get(0, MiB / 4) == item_result::done);
  BOOST_TEST(node.locate({0}).held[0]);
  node.wait_until(true);
  server.say({"CONFIG", "SET", "maxmemory", "1"});
  // An instance that has no epoch yet cannot get one: nothing of it is there, and nothing is taken.
  BOOST_TEST(node.put(0, 64, 99) == item_result::full);
  BOOST_TEST(node.get(0, 64, 99) == item_result::missing);
  BOOST_TEST(node.locate({0}, 2s, 99).is_complete);
  BOOST_TEST(!node.clear(99).has_value());
}

BOOST_AUTO_TEST_CASE(a_server_that_evicts_everything_is_only_empty) {
  const test::redis_server server({"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"});
  backend_under_test node(server.url());
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto what = node.put(i, MiB / 8);
    BOOST_REQUIRE((what == item_result::done || what == item_result::full));
    const auto got = node.get(i / 2, MiB / 8);
    BOOST_REQUIRE_MESSAGE((got == item_result::done || got == item_result::missing), got);
  }
}

BOOST_AUTO_TEST_CASE(a_password_is_given_and_a_wrong_or_missing_one_is_explained) {
  const test::redis_server server({"--requirepass", "open sesame"});
  const auto file = server.folder() / "secret";
  std::ofstream(file) << "open sesame\n";
  BOOST_REQUIRE(::chmod(file.c_str(), 0600) == 0);
  const auto with_file = [&](redis_options& options) { options.credentials = file; };
  {
    backend_under_test node(server.url(), with_file);
    BOOST_TEST(node.put(1) == item_result::done);
    backend_under_test stranger(server.url());
    const auto why = stranger.wait_until(false);
    BOOST_TEST(why.find("NOAUTH") != std::string::npos, why);
    BOOST_TEST(why.find("file") != std::string::npos, why);
    BOOST_TEST(stranger.get(1) == item_result::unreachable);
  }
  std::ofstream(file, std::ios::trunc) << "wrong one\n";
  backend_under_test node(server.url(), with_file);
  const auto why = node.wait_until(false);
  BOOST_TEST(why.find("WRONGPASS") != std::string::npos, why);
  BOOST_TEST(why.find("wrong one") == std::string::npos, why);
  std::ofstream(file, std::ios::trunc) << "default:open sesame\n";
  node.wait_until(true);  // it is read at each attempt
  BOOST_TEST(node.get(1) == item_result::done);
}

BOOST_AUTO_TEST_CASE(databases_and_prefixes_keep_nodes_apart) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test second(server.url() + "?db=2");
  backend_under_test third(server.url() + "?prefix=other");
  BOOST_TEST(one.put(1) == item_result::done);
  BOOST_TEST(second.get(1) == item_result::missing);
  BOOST_TEST(third.get(1) == item_result::missing);
  BOOST_TEST(third.put(1) == item_result::done);
  BOOST_TEST(one.drop({1}).value() == 1U);
  BOOST_TEST(third.get(1) == item_result::done);
  backend_under_test none(server.url() + "?db=4000");
  BOOST_TEST(none.wait_until(false).find("DB index") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_read_only_replica_is_refused_and_its_primary_is_asked_for) {
  const test::redis_server primary;
  test::redis_server replica;
  backend_under_test node(replica.url());
  BOOST_TEST(node.put(1) == item_result::done);
  replica.say({"REPLICAOF", "127.0.0.1", "1"});
  BOOST_TEST(node.gets_to_be(item_result::unreachable, [&] { return node.put(2); }));
  const auto why = node.wait_until(false);
  BOOST_TEST((why.find("primary") != std::string::npos), why);
  replica.say({"REPLICAOF", "NO", "ONE"});
  node.wait_until(true);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(2); }));
}

BOOST_AUTO_TEST_CASE(values_that_were_altered_cut_or_of_another_version_are_wrong_once_and_then_gone) {
  const test::redis_server server;
  backend_under_test node(server.url());
  const auto alter = [&](const std::vector<std::string>& command) {
    BOOST_REQUIRE(node.put(1) == item_result::done);
    auto whole = command;
    whole.insert(whole.begin() + 1, key_on(server));
    server.say(whole);
    BOOST_TEST(node.get(1) == item_result::wrong, command[0] << " " << command[1]);
    BOOST_TEST(node.get(1) == item_result::missing);
  };
  alter({"SETRANGE", "2000", "x"});
  alter({"SETRANGE", "8", "\x7f"});
  alter({"SETRANGE", "16", "other"});
  alter({"SETRANGE", "74", "k"});
  alter({"APPEND", "more"});
  alter({"SET", ""});
  alter({"SET", std::string(value_header_bytes, '\0')});
  alter({"SET", std::string(4096 + value_header_bytes, 'z')});
  alter({"SET", std::string(3 * MiB, 'z')});
  BOOST_REQUIRE(node.put(1) == item_result::done);
  const auto key = key_on(server);
  server.say({"DEL", key});
  server.say({"RPUSH", key, "a list"});
  BOOST_TEST(node.get(1) == item_result::wrong);
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(node.get(1, 8192) == item_result::missing);
  BOOST_TEST(node.counts_until([](const redis_counts& now) { return now.wrong == 10 && now.discarded == 10; }));
}

BOOST_AUTO_TEST_CASE(a_block_of_another_size_under_the_same_name_is_wrong) {
  const test::redis_server server;
  backend_under_test node(server.url());
  BOOST_TEST(node.put(1, 4096) == item_result::done);
  BOOST_TEST(node.get(1, 8192) == item_result::wrong);
}

BOOST_AUTO_TEST_CASE(what_redis_cannot_hold_is_refused_without_sending_it) {
  const test::redis_server server;
  backend_under_test node(server.url(), [](redis_options& options) { options.open_bytes = 4096 * MiB; });
  const std::size_t size = 512 * MiB - 100;
  void* memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BOOST_REQUIRE(memory != MAP_FAILED);
  const std::span<std::byte> block(static_cast<std::byte*>(memory), size);
  BOOST_TEST(node.put_outcome(node.begin_put(1, block)) == item_result::full);
  BOOST_TEST(node.get_outcome(node.begin_get(1, block)) == item_result::missing);
  ::munmap(memory, size);
}

BOOST_AUTO_TEST_CASE(a_server_with_a_lower_bound_on_values_is_not_tried_again_and_again) {
  const test::redis_server server({"--proto-max-bulk-len", "1mb"});
  backend_under_test node(server.url());
  node.wait_until(true);
  BOOST_TEST(node.gets_to_be(item_result::full, [&] { return node.put(1, 2 * MiB); }));
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(2, MiB / 2); }));
  BOOST_TEST(node.put(3, 64) == item_result::done);  // what was counted before is told now
  const auto lost = node->counts().lost;
  for (std::uint64_t i = 0; i < 20; ++i) BOOST_TEST(node.put(10 + i, 2 * MiB) == item_result::full);
  BOOST_TEST(node->counts().lost == lost);
}

BOOST_AUTO_TEST_CASE(what_was_cleared_is_gone_for_every_node_and_can_be_put_again) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  BOOST_TEST(one.put(1) == item_result::done);
  BOOST_TEST(one.put(1, 4096, 5) == item_result::done);
  BOOST_TEST(other.get(1) == item_result::done);
  BOOST_REQUIRE(one.clear().has_value());
  BOOST_TEST(one.get(1) == item_result::missing);
  BOOST_TEST(other.get(1) == item_result::missing);
  BOOST_TEST(!other.locate({1}).held[0]);
  BOOST_TEST(other.get(1, 4096, 5) == item_result::done);
  BOOST_TEST(other.gets_to_be(item_result::done,
                              [&] { return other.put(1) == item_result::done ? one.get(1) : item_result::full; }));
  BOOST_TEST(one.get(1) == item_result::done);
}

BOOST_AUTO_TEST_CASE(the_first_removal_after_another_nodes_clear_takes_what_was_put_since) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  for (int round = 0; round < 10; ++round) {  // also in a run that began before the clear
    BOOST_REQUIRE(one.put(1) == item_result::done);
    BOOST_TEST(other.locate({1}).held[0]);
    BOOST_REQUIRE(one.clear().has_value());
    BOOST_REQUIRE(one.put(1) == item_result::done);
    BOOST_TEST(other.drop({1}).value() == 1U);
    BOOST_TEST(one.get(1) == item_result::missing);
  }
}

BOOST_AUTO_TEST_CASE(a_put_under_an_epoch_that_is_over_is_not_kept_and_not_brought_back) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  BOOST_REQUIRE(one.put(1) == item_result::done);
  BOOST_REQUIRE(other.put(1) == item_result::done);
  BOOST_REQUIRE(one.clear().has_value());
  BOOST_TEST(other.put(2) == item_result::refused);
  BOOST_TEST(one.get(2) == item_result::missing);
  BOOST_TEST(other.put(2) == item_result::done);
  BOOST_TEST(one.get(2) == item_result::done);
}

BOOST_AUTO_TEST_CASE(nothing_is_put_after_another_nodes_clear_until_this_nodes_own_tiers_have_cleared) {
  const test::redis_server server;
  std::atomic<int> heard_by_one = 0, heard_by_other = 0;
  backend_under_test one(server.url(), {}, {}, [&](const instance_identity&) { ++heard_by_one; });
  backend_under_test other(server.url(), {}, {}, [&](const instance_identity& identity) {
    BOOST_TEST((identity == some_identity));
    ++heard_by_other;
  });
  BOOST_REQUIRE(one.put(1) == item_result::done);
  BOOST_REQUIRE(other.put(2) == item_result::done);
  BOOST_REQUIRE(one.clear().has_value());
  BOOST_REQUIRE(one.put(3) == item_result::done);
  auto bytes = block_of(4, 64);
  const auto early = other.begin_put(4, bytes);
  while (heard_by_other == 0) std::this_thread::yield();
  const auto waits = other.begin_put(5, bytes);
  BOOST_TEST(other.get(3, 4096, 77) == item_result::missing);  // another instance waits for nothing
  BOOST_TEST(other.answers() == 2U);
  other->clear_above_ended(some_identity, {});
  BOOST_TEST(other.put_outcome(early) == item_result::refused);
  BOOST_TEST(other.put_outcome(waits) == item_result::refused);
  BOOST_TEST(other.put(4) == item_result::done);
  BOOST_TEST(one.get(4) == item_result::done);
  BOOST_TEST(one.get(3) == item_result::done);
  BOOST_TEST(other.get(3) == item_result::done);
  BOOST_TEST(heard_by_other == 1);  // once for all its connections
  BOOST_TEST(heard_by_one == 0);    // its own clear has cleared its own tiers
}

BOOST_AUTO_TEST_CASE(own_tiers_that_could_not_clear_are_asked_again_also_by_the_next_process) {
  const test::redis_server server;
  const test::scratch_folder state;
  backend_under_test one(server.url());
  std::atomic<int> heard = 0;
  const auto hear = [&](const instance_identity&) { ++heard; };
  {
    backend_under_test other(server.url(), {}, state.path(), hear);
    BOOST_REQUIRE(other.put(1) == item_result::done);
    BOOST_REQUIRE(one.put(1) == item_result::done);
    BOOST_REQUIRE(one.clear().has_value());
    auto bytes = block_of(2, 64);
    const auto waits = other.begin_put(2, bytes);
    while (heard == 0) std::this_thread::yield();
    other->clear_above_ended(some_identity, fail(error_code::removal_pending, "a path is away"));
    BOOST_TEST(other.put_outcome(waits) == item_result::full);
  }
  const int heard_before = heard;  // it was asked once, or again since
  backend_under_test other(server.url(), {}, state.path(), hear);
  other.wait_until(true);
  other->look_for_clear(some_identity);
  while (heard == heard_before) std::this_thread::yield();
  other->clear_above_ended(some_identity, {});
  BOOST_TEST(other.put(2) == item_result::done);
  BOOST_TEST(heard == heard_before + 1);
}

BOOST_AUTO_TEST_CASE(a_server_that_forgot_a_clear_hears_of_it_again_and_one_that_forgot_an_epoch_costs_nothing) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  BOOST_REQUIRE(one.put(1) == item_result::done);
  BOOST_REQUIRE(other.put(1) == item_result::done);
  const auto before = server.say({"GET", epoch_key_of()});
  server.say({"DEL", epoch_key_of()});
  BOOST_TEST(one.get(1) == item_result::missing);
  BOOST_TEST(one.put(1) == item_result::done);
  BOOST_TEST(!differ_by_clear(epoch_in(before), epoch_in(server.say({"GET", epoch_key_of()}))));
  BOOST_TEST(other.put(2) == item_result::done);  // sent again under the new one, not turned down: nothing was cleared
  BOOST_REQUIRE(one.clear().has_value());
  server.say({"SET", epoch_key_of(), before});  // the copy that became the primary
  BOOST_TEST(other.put(3) == item_result::done);
  BOOST_TEST(one.get(3) == item_result::missing);
  BOOST_TEST(other.put(4) == item_result::refused);  // the clear of another node
  BOOST_TEST(one.get(4) == item_result::missing);
}

BOOST_AUTO_TEST_CASE(a_clear_of_all_reaches_what_only_an_earlier_process_knew) {
  const test::redis_server server;
  const test::scratch_folder state;
  backend_under_test other(server.url());
  BOOST_REQUIRE(other.put(1, 4096, 7) == item_result::done);
  {
    backend_under_test node(server.url(), {}, state.path());
    BOOST_REQUIRE(node.put(1, 4096, 5) == item_result::done);
    BOOST_REQUIRE(node.put(1, 4096, 6) == item_result::done);
  }
  backend_under_test node(server.url(), {}, state.path());
  node.wait_until(true);
  std::promise<result<void>> told;
  node->clear_all({8_identity}, [&](auto cleared) { told.set_value(std::move(cleared)); });
  BOOST_TEST(told.get_future().get().has_value());
  for (const std::uint64_t identity : {5U, 6U}) BOOST_TEST(other.get(1, 4096, identity) == item_result::missing);
  BOOST_TEST(other.get(1, 4096, 7) == item_result::done);
}

BOOST_AUTO_TEST_CASE(a_clear_while_the_server_is_away_is_carried_out_by_the_next_process_before_it_serves) {
  test::redis_server server;
  const test::scratch_folder state;
  {
    backend_under_test node(server.url(), {}, state.path());
    BOOST_TEST(node.put(1) == item_result::done);
    server.freeze();
    const auto cleared = node.clear();
    BOOST_REQUIRE(!cleared.has_value());
    BOOST_TEST((cleared.error().code() == error_code::removal_pending));
  }
  server.thaw();
  const auto before = server.say({"GET", epoch_key_of()});
  backend_under_test node(server.url(), {}, state.path());
  // Without being asked: other nodes are not to find it either.
  BOOST_TEST(node.gets_to_be(item_result::done, [&] {
    return server.say({"GET", epoch_key_of()}) > before ? item_result::done : item_result::missing;
  }));
  // Its other connections may come later than the one that cleared.
  BOOST_TEST(node.gets_to_be(item_result::missing, [&] { return node.get(1); }));
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(1); }));
  backend_under_test other(server.url());
  BOOST_TEST(other.gets_to_be(item_result::done, [&] { return other.get(1); }));
}

BOOST_AUTO_TEST_CASE(an_epoch_that_is_absent_older_or_nonsense_on_the_server_means_clear_again) {
  const test::redis_server server;
  backend_under_test node(server.url());
  backend_under_test other(server.url());
  BOOST_REQUIRE(node.put(1) == item_result::done);
  const auto key = epoch_key_of();
  const auto before = server.say({"GET", key});
  for (const std::vector<std::string>& harm : std::vector<std::vector<std::string>>{{"DEL", key},
                                                                                    {"SET", key, "0000000000000001"},
                                                                                    {"SET", key, "nonsense"},
                                                                                    {"SET", key, "ffffffffffffffff"}}) {
    BOOST_REQUIRE(node.gets_to_be(item_result::done, [&] { return node.put(1), node.get(1); }));
    server.say(harm);
    BOOST_TEST(node.get(1) == item_result::missing);
    BOOST_TEST(node.get(1) == item_result::missing);
    BOOST_TEST(other.get(1) == item_result::missing);
    BOOST_TEST(server.say({"GET", key}) > before);
    BOOST_TEST(server.say({"GET", key}).size() == 16U);
  }
}

BOOST_AUTO_TEST_CASE(a_list_in_the_place_of_an_epoch_harms_no_other_instance_and_is_replaced) {
  const test::redis_server server;
  backend_under_test node(server.url());
  BOOST_REQUIRE(node.put(1, 4096, 5) == item_result::done);
  server.say({"RPUSH", epoch_key_of(), "a list"});
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(node.get(1, 4096, 5) == item_result::done);
  BOOST_TEST(node->counts().lost == 0U);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(1); }));
  BOOST_TEST(node.get(1, 4096, 5) == item_result::done);
}

BOOST_AUTO_TEST_CASE(a_newer_epoch_on_the_server_is_adopted_and_kept) {
  const test::redis_server server;
  const test::scratch_folder state;
  const std::string newer = epoch_text(epoch{1} << 61U);
  {
    backend_under_test node(server.url(), {}, state.path());
    BOOST_REQUIRE(node.put(1) == item_result::done);
    server.say({"SET", epoch_key_of(), newer});
    BOOST_TEST(node.get(1) == item_result::missing);
    BOOST_TEST(node.put(1) == item_result::done);
    BOOST_TEST(node.get(1) == item_result::done);
    BOOST_TEST(server.say({"GET", epoch_key_of()}) == newer);
  }
  server.say({"SET", epoch_key_of(), "0000000000000001"});  // an old snapshot
  backend_under_test node(server.url(), {}, state.path());
  BOOST_TEST(node.get(1) == item_result::missing);
  BOOST_TEST(server.say({"GET", epoch_key_of()}) > newer);
}

BOOST_AUTO_TEST_CASE(two_nodes_that_renew_at_once_agree) {
  const test::redis_server server;
  backend_under_test one(server.url());
  backend_under_test other(server.url());
  one.wait_until(true);
  other.wait_until(true);
  for (std::uint64_t identity = 100; identity < 140; ++identity) {
    auto bytes = block_of(1, 64);
    const auto first = one.begin_put(1, bytes, identity);
    const auto second = other.begin_put(2, bytes, identity);
    BOOST_REQUIRE(one.put_outcome(first) == item_result::done);
    BOOST_REQUIRE(other.put_outcome(second) == item_result::done);
    BOOST_REQUIRE(one.put(3, 64, identity) == item_result::done);
    BOOST_TEST(other.get(3, 64, identity) == item_result::done);
  }
}

BOOST_AUTO_TEST_CASE(blocks_lie_on_several_servers_and_one_that_is_away_takes_only_its_share) {
  // Two Unix sockets cannot be named in one address: ports of the loopback.
  const auto with_port = [](const std::string& port) {
    return std::make_unique<test::redis_server>(std::vector<std::string>{"--port", port, "--bind", "127.0.0.1"});
  };
  const auto first_port = test::free_port();
  auto first = with_port(first_port);
  const auto second_port = test::free_port();
  auto second = with_port(second_port);
  backend_under_test node("redis://127.0.0.1:" + first_port + ",127.0.0.1:" + second_port);
  for (std::uint64_t i = 0; i < 100; ++i) BOOST_REQUIRE(node.put(i, 64) == item_result::done);
  for (std::uint64_t i = 0; i < 100; ++i) BOOST_REQUIRE(node.get(i, 64) == item_result::done);
  second->kill();
  BOOST_REQUIRE(node.gets_to_be(item_result::unreachable,
                                [&, i = std::uint64_t{0}]() mutable { return node.get(i++ % 100, 64); }));
  std::size_t there = 0;
  for (std::uint64_t i = 0; i < 100; ++i) there += node.get(i, 64) == item_result::done ? 1 : 0;
  BOOST_TEST((there > 20 && there < 80));
  node.wait_until(true);
  std::vector<std::uint64_t> all(100);
  for (std::uint64_t i = 0; i < 100; ++i) all[i] = i;
  const auto found = node.locate(all);
  BOOST_TEST(!found.is_complete);
  BOOST_TEST(static_cast<std::size_t>(std::ranges::count(found.held, true)) == there);
  BOOST_TEST(!node.clear().has_value());
  second->start();
  for (std::uint64_t i = 0; i < 100; ++i) {
    BOOST_REQUIRE(node.gets_to_be(item_result::missing, [&] { return node.get(i, 64); }));
  }
}

BOOST_AUTO_TEST_CASE(stop_answers_what_is_open_and_nothing_is_called_afterwards) {
  test::redis_server server;
  backend_under_test node(server.url());
  node.wait_until(true);
  server.freeze();
  auto bytes = block_of(1, MiB);
  std::vector<std::byte> memory(MiB);
  for (std::uint64_t i = 0; i < 200; ++i) {
    node.begin_put(i, bytes);
    node.begin_get(i, memory);
  }
  std::promise<presence> located;
  node->locate({name_of(1)}, 2s, [&](presence found) { located.set_value(std::move(found)); });
  std::promise<result<std::uint64_t>> dropped;
  node->drop(some_identity, {name_of(1).key()}, [&](auto count) { dropped.set_value(std::move(count)); });
  std::promise<result<void>> cleared;
  node->clear(some_identity, [&](auto outcome) { cleared.set_value(std::move(outcome)); });
  node->stop();
  BOOST_TEST(node.answers() == 400U);
  BOOST_TEST((located.get_future().wait_for(0s) == std::future_status::ready));
  BOOST_TEST((dropped.get_future().wait_for(0s) == std::future_status::ready));
  BOOST_TEST((cleared.get_future().wait_for(0s) == std::future_status::ready));
  node.begin_put(1, bytes);
  node->stop();
  BOOST_TEST(node.answers() == 400U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
