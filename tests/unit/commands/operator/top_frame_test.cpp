#include "commands/operator/top_frame.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>

namespace top_frame_test {

using cenote::top_frame;
using nlohmann::json;

namespace {

json status(std::uint64_t epoch, std::uint64_t evicted, std::uint64_t written) {
  return {{"node", {{"epoch", epoch}, {"version", "1"}, {"state", "serving"}, {"uptime_s", 3661}}},
          {"dram",
           {{"capacity", 4096},
            {"used", 1024},
            {"policy", "lru"},
            {"high_water", 0.97},
            {"low_water", 0.94},
            {"blocks", {{"present", 12}}}}},
          {"nvme", {{"capacity", 8192}, {"used", 8192}, {"counters", {{"written_bytes", written}, {"read_bytes", 0}}}}},
          {"sessions", {{{"id", 1}, {"pid", 77}, {"client", "vllm"}, {"entries", evicted}}}},
          {"counters", {{"commits", 5}, {"evicted", evicted}}}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(top)

BOOST_AUTO_TEST_CASE(a_single_look_has_totals_and_no_rates) {
  const auto text = top_frame(status(1, 100, 4096), nullptr, 0, {});
  for (const auto* part :
       {"dram [########......................]  25.0 %  1.0 KiB of 4.0 KiB, 12 blocks, water 94-97 %, lru",
        "nvme [##############################] 100.0 %", "up 1:01:01", "vllm"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
  for (const auto* rate : {"0/s", "B/s"}) BOOST_TEST(!has(text, rate), text);
  BOOST_TEST(!has(text, "\x1b"));
}

BOOST_AUTO_TEST_CASE(what_loading_brings_stands_beside_what_computing_would_take) {
  json now = status(1, 100, 4096);
  now["prefetch"] = {{"started", 9},
                     {"waiting", 2},
                     {"ended", {{"cannot_win", 4}, {"cut", 3}}},
                     {"bytes_per_s", 1048576.0},
                     {"latency_s", 0.0025},
                     {"measured_age_s", 7.2},
                     {"probes", 5},
                     {"recompute_s", 10.0},
                     {"saved_s", 8.0},
                     {"waited_s", 3.0},
                     {"lost_s", 0.1}};
  const auto text = top_frame(now, nullptr, 0, {});
  for (const auto* part : {"LOADS  1.0 MiB/s, the first after 2.5 ms, measured 7 s ago",
                           "  9 prefetches, 2 wait; 4 could not win, 3 cut; 5 probes",
                           "  of 10.0 s to compute 8.0 s saved, 3.0 s waited; 0.1 s of that in vain"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
}

BOOST_AUTO_TEST_CASE(two_looks_make_rates) {
  const auto text = top_frame(status(1, 300, 4096), status(1, 100, 2048), 2, {});
  BOOST_TEST(has(text, "100/s"));
  BOOST_TEST(has(text, "1.0 KiB/s"));
}

BOOST_AUTO_TEST_CASE(hits_are_those_since_the_look_before_and_of_all_keys_at_the_first) {
  json before = status(1, 0, 0);
  before["sessions"][0]["looked_up"] = {{"match", 100}, {"read", 50}};
  before["sessions"][0]["found"] = {{"match", 80}, {"read", 50}};
  json now = before;
  now["sessions"][0]["looked_up"]["match"] = 200;
  now["sessions"][0]["found"]["match"] = 90;
  const auto first = top_frame(before, nullptr, 0, {});
  BOOST_TEST(has(first, "80.0 %"), first);
  const auto second = top_frame(now, before, 1, {});
  BOOST_TEST(has(second, "10.0 %"), second);
  const auto idle = top_frame(now, now, 1, {});
  for (const auto* rate : {"80.0 %", "45.0 %", " 0.0 %  "}) BOOST_TEST(!has(idle, rate), idle);
}

BOOST_AUTO_TEST_CASE(of_a_session_that_reads_without_asking_the_hits_are_those_of_its_reads) {
  json now = status(1, 0, 0);
  now["sessions"][0]["looked_up"] = {{"match", 0}, {"read", 40}};
  now["sessions"][0]["found"] = {{"match", 0}, {"read", 30}};
  const auto text = top_frame(now, nullptr, 0, {});
  BOOST_TEST(has(text, "75.0 %"), text);
}

BOOST_AUTO_TEST_CASE(another_worker_counts_from_its_own_zero) {
  const auto text = top_frame(status(2, 10, 0), status(1, 300, 4096), 1, {});
  for (const auto* rate : {"0/s", "B/s"}) BOOST_TEST(!has(text, rate), text);
}

BOOST_AUTO_TEST_CASE(a_small_terminal_gets_what_fits) {
  const auto text = top_frame(status(1, 0, 0), nullptr, 0, {.columns = 20, .rows = 4});
  BOOST_TEST(std::count(text.begin(), text.end(), '\n') == 4);
  for (std::size_t from = 0; from < text.size(); from = text.find('\n', from) + 1) {
    BOOST_TEST(text.find('\n', from) - from <= 20U);
  }
}

BOOST_AUTO_TEST_CASE(a_status_of_nothing_is_a_frame) {
  for (const auto* text : {"{}", "[]", "null", R"({"node": 3, "nvme": {"paths": 7}, "sessions": [4]})"}) {
    BOOST_TEST(has(top_frame(json::parse(text), nullptr, 0, {}), "TIERS"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace top_frame_test
