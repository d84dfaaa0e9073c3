// Commands and scripts of a shared index, carried out by a real server.
#include "services/indexer/backends/index_commands.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "services/indexer/backends/pod_entry.hpp"
#include "tests/support/redis_server.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::indexer {

namespace {

using namespace std::chrono_literals;

class script_world {
 public:
  script_world() : client_(redis::waiting_client::make({.address = {.path = server.socket(), .place = {}}}).value()) {}

  std::vector<long long> run(const std::vector<std::string>& commands) {
    std::vector<long long> numbers(commands.size());
    const auto done =
        client_.run(commands, redis::present_time() + 60s, [&](std::size_t index, const redis::server_reply& reply) {
          BOOST_TEST((reply.kind != redis::server_reply::type::failure), reply.text);
          numbers[index] = reply.number;
        });
    BOOST_REQUIRE(done.has_value());
    return numbers;
  }
  void add(const std::string& pod, const std::vector<std::uint64_t>& keys, const std::vector<std::uint64_t>& hashes,
           const std::string& tier = "gpu") {
    std::vector<std::string> commands;
    shared_commands::add_blocks(commands, pod, field_text({.pod = pod, .tier = tier}), keys, hashes);
    run(commands);
  }
  long long remove(const std::string& pod, const std::vector<std::uint64_t>& hashes, const std::string& tier = "gpu") {
    std::vector<std::string> commands;
    shared_commands::remove_blocks(commands, pod, field_text({.pod = pod, .tier = tier}), hashes);
    long long sum = 0;
    for (const long long each : run(commands)) sum += each;
    return sum;
  }
  long long clear(const std::string& pod, const std::string& tier, const std::vector<std::string>& keys) {
    return run({shared_commands::clear_blocks(pod, field_begin(pod, tier), keys)}).front();
  }
  std::string say(const std::vector<std::string>& command) { return server.say(command); }

  test::redis_server server;

 private:
  redis::waiting_client client_;
};

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

}  // namespace

BOOST_AUTO_TEST_SUITE(index_commands)

BOOST_AUTO_TEST_CASE(blocks_have_a_field_a_name_and_a_place_in_the_pods_set) {
  script_world all;
  all.add("a", {largest, 2}, {10, largest - 1});
  BOOST_TEST(all.say({"HKEYS", "18446744073709551615"}) == field_text({.pod = "a", .tier = "gpu"}));
  BOOST_TEST(all.say({"ZRANGE", "engine:18446744073709551614", "0", "-1", "WITHSCORES"}) == "2\n1");
  BOOST_TEST(all.say({"SCARD", "engine:pod:a"}) == "2");
}

BOOST_AUTO_TEST_CASE(a_removal_takes_one_tier_of_one_pod_and_prunes_what_is_empty) {
  script_world all;
  all.add("a", {1, 2}, {10, 20});
  all.add("b", {1}, {10});
  all.add("a", {1}, {}, "cpu");
  BOOST_TEST(all.remove("a", {10, 20, 30}) == 2);
  BOOST_TEST(all.say({"HLEN", "1"}) == "2");
  BOOST_TEST(all.say({"EXISTS", "2"}) == "0");
  BOOST_TEST(all.say({"EXISTS", "engine:20"}) == "0");
  BOOST_TEST(all.say({"EXISTS", "engine:10"}) == "1");
  BOOST_TEST(all.say({"SMEMBERS", "engine:pod:a"}) == "1");
  BOOST_TEST(all.remove("a", {10}, "cpu") == 1);
  BOOST_TEST(all.remove("b", {10}) == 1);
  BOOST_TEST(all.say({"DBSIZE"}) == "0");
}

BOOST_AUTO_TEST_CASE(a_removal_of_many_names_is_several_scripts) {
  script_world all;
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 1; i <= 1000; ++i) keys.push_back(i);
  all.add("a", keys, keys);
  BOOST_TEST(all.remove("a", keys) == 1000);
  BOOST_TEST(all.say({"DBSIZE"}) == "0");
}

BOOST_AUTO_TEST_CASE(a_removal_by_another_indexer_between_two_commands_takes_no_name_of_a_block) {
  const auto field_of = [](const std::string& pod) { return field_text({.pod = pod, .tier = "gpu"}); };
  std::vector<std::string> added;
  shared_commands::add_blocks(added, "a", field_of("a"), std::vector<std::uint64_t>{1, 2},
                              std::vector<std::uint64_t>{10, 10});
  for (std::size_t place = 0; place <= added.size(); ++place) {
    script_world all;
    all.add("b", {1}, {10});
    const auto split = added.begin() + static_cast<std::ptrdiff_t>(place);
    all.run({added.begin(), split});
    BOOST_TEST(all.remove("b", {10}) == 1);
    all.run({split, added.end()});
    BOOST_TEST(all.remove("a", {10}) == 2, "the removal stands before command " << place);
    BOOST_TEST(all.say({"DBSIZE"}) == "0");
  }
}

BOOST_AUTO_TEST_CASE(a_name_of_several_blocks_removes_all_of_them) {
  script_world all;
  all.add("a", {1, 2}, {});
  for (const std::string key : {"1", "2"}) all.say({"ZADD", "engine:5", key, key});
  BOOST_TEST(all.remove("a", {5}) == 2);
  BOOST_TEST(all.say({"DBSIZE"}) == "0");
}

BOOST_AUTO_TEST_CASE(a_clear_takes_the_pods_fields_and_passes_what_is_no_hash) {
  script_world all;
  all.add("a", {1, 2}, {10, 20});
  all.add("a", {1}, {}, "cpu");
  all.add("ab", {1}, {});
  all.say({"SET", "3", "text"});
  BOOST_TEST(all.clear("a", "gpu", {"1", "2", "3", "4"}) == 2);
  BOOST_TEST(all.say({"SMEMBERS", "engine:pod:a"}) == "1");
  BOOST_TEST(all.clear("a", "", {"1", "2", "3", "4"}) == 1);
  BOOST_TEST(all.say({"HKEYS", "1"}) == field_text({.pod = "ab", .tier = "gpu"}));
  BOOST_TEST(all.say({"EXISTS", "engine:pod:a"}) == "0");
  BOOST_TEST(all.say({"GET", "3"}) == "text");
}

BOOST_AUTO_TEST_CASE(strange_values_harm_no_other_name) {
  script_world all;
  all.add("a", {1, 2}, {10, 20});
  all.say({"SET", "engine:10", "text"});
  all.say({"ZADD", "engine:30", "0", "9"});
  all.say({"SET", "9", "text"});
  BOOST_TEST(all.remove("a", {10, 20, 30}) == 1);
  BOOST_TEST(all.say({"GET", "9"}) == "text");
}

BOOST_AUTO_TEST_CASE(keys_of_blocks_are_decimal_numbers) {
  BOOST_TEST((shared_keys::block_key_in("18446744073709551615") == largest));
  for (const std::string_view text : {"", "-1", "1a", "engine:1", "18446744073709551616", " 1"}) {
    BOOST_TEST(!shared_keys::block_key_in(text).has_value(), text);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
