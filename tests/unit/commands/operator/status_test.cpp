#include "commands/operator/status.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

#include "commands/common.hpp"
#include "commands/table.hpp"

namespace status_test {

namespace {

using namespace cenote;
using nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(status)

BOOST_AUTO_TEST_CASE(shows_sizes_and_ages_as_people_read_them) {
  const auto text = status_text(json::parse(R"({
    "node": {"pid": 1, "worker_pid": 2, "epoch": 3, "version": "0.1.0", "uptime_s": 90061, "state": "serving", "socket": "/run/x"},
    "dram": {"capacity": 4294967296, "used": 1073741824, "free": 1, "slabs": 4, "policy": "lru", "evicted": 7,
             "blocks": {"present": 10, "free": 20}},
    "instances": [{"id": "demo", "group": "g", "blocks": 10, "bytes": 20971520, "sessions": 1, "index_slots": 1024},
                  {"id": "left", "group": "g", "idle_s": 3700, "given_up_in_s": 82700}],
    "groups": [{"name": "g", "quota": 2147483648, "used": 1073741824}, {"name": "h", "quota": 0, "used": 0}],
    "sessions": [{"id": 5, "pid": 77, "uid": 0, "instance": "demo", "client": "vllm", "pins": 3, "oldest_pin_s": 1.25,
                  "grants": 64, "state": "attached", "age_s": 65}],
    "counters": {"commits": 12}})"));
  for (const auto* part :
       {"0.1.0 serving, up 1d 1h, pid 1, worker 2 (epoch 3", "1.0 GiB of 4.0 GiB used (25.0 %)", "10 present, 20 free",
        "20.0 MiB", "50.0 %", "none", "vllm", "1h 1m", "22h 58m", "1.2 s", "1m 5s", "commits"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
}

BOOST_AUTO_TEST_CASE(says_what_loading_brings_where_there_is_a_tier_below) {
  const auto text = status_text(json::parse(R"({"nvme": {}, "prefetch": {
    "started": 9, "ended": {"cannot_win": 2, "cut": 1}, "probes": 3, "bytes_per_s": 104857600, "latency_s": 0.002,
    "measured_age_s": 5, "recompute_s": 12, "saved_s": 8, "waited_s": 3, "lost_s": 0.5}})"));
  for (const auto* part :
       {"100.0 MiB/s, the first after 2.0 ms, measured 5.0 s ago", "9 prefetches, 2 could not win, 1 cut; 3 probes",
        "of 12.0 s to compute 8.0 s saved, 3.0 s"}) {
    BOOST_TEST(has(text, part), part << " is missing in\n" << text);
  }
  BOOST_TEST(!has(status_text(json::parse(R"({"nvme": null, "prefetch": {}})")), "loads"));
  BOOST_TEST(has(status_text(json::parse(R"({"nvme": {}, "prefetch": {}})")), "not measured yet"));
}

BOOST_AUTO_TEST_CASE(survives_missing_unknown_and_mistyped_fields) {
  for (const auto* text :
       {"{}", "[]", "null", "7", R"({"node": 3, "dram": [], "instances": {"a": 1}, "sessions": "x"})",
        R"({"dram": {"capacity": "big", "used": -4, "blocks": null}, "counters": [1]})",
        R"({"sessions": [{}, 3, {"pins": 1e300, "age_s": "old", "id": {"a": []}}], "extra": true})",
        R"({"instances": [null], "groups": [[]], "node": {"uptime_s": 1e300}})"}) {
    BOOST_TEST(has(status_text(json::parse(text)), "node"));
  }
}

BOOST_AUTO_TEST_CASE(aligns_columns) {
  table rows({"NAME", ">COUNT"});
  rows.add({"a", "5"});
  rows.add({"longer"});
  BOOST_TEST(rows.text(1) == " NAME    COUNT\n a           5\n longer\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace status_test
