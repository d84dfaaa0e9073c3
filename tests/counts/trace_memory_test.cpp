#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "commands/replay/streamed_trace.hpp"
#include "core/key_sample.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/optimize/sampled_curve.hpp"
#include "tests/support/allocations.hpp"

namespace cenote::replay {

namespace {

std::filesystem::path file_path() {
  return std::filesystem::temp_directory_path() / fmt::format("cenote-trace-memory-{}", ::getpid());
}

/// Sessions that grow by three blocks a request: of each request all blocks but those are old ones.
template <class Take>
void make_requests(std::uint64_t count, Take&& take) {
  std::vector<std::vector<std::uint64_t>> sessions(50);
  std::uint64_t next = 1'000'000'000;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto& chain = sessions[mixed_bits(i) % sessions.size()];
    if (chain.size() > 60) chain.clear();
    if (chain.empty()) chain.push_back(7);
    for (int more = 0; more < 3; ++more) chain.push_back(next++);
    take(i, chain);
  }
}

void write_lines(std::uint64_t count, std::string_view form) {
  std::ofstream file(file_path());
  make_requests(count, [&](std::uint64_t i, const std::vector<std::uint64_t>& chain) {
    file << fmt::format(fmt::runtime(form), i, chain.size() * 16, fmt::join(chain, ","), i % 1'000);
  });
}

void write_ctrace(std::uint64_t count) {
  simulation::trace made(16);
  make_requests(
      count, [&](std::uint64_t i, const std::vector<std::uint64_t>& chain) { made.add(i, chain.size() * 16, chain); });
  const auto bytes = formats::ctrace::encode(made, {});
  BOOST_REQUIRE(bytes.has_value());
  std::ofstream(file_path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
}

/// The most bytes that were allocated at a time while the file was read and sampled.
std::int64_t most_bytes() {
  const std::int64_t before = test::allocations().live_bytes;
  std::int64_t most = 0;
  simulation::sampled_curve sample({.sampled = 1'024});
  const auto read = stream_trace_file(file_path().string(), {.format = "auto", .full_blocks = true},
                                      [&](std::span<const std::uint64_t> chain, std::uint64_t /*time_ms*/) {
                                        sample.add(chain);
                                        most = std::max(most, test::allocations().live_bytes - before);
                                      });
  BOOST_REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  std::filesystem::remove(file_path());
  return most;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_memory)

BOOST_AUTO_TEST_CASE(lines_that_are_streamed_take_the_same_memory_however_many_there_are) {
  for (const std::string_view form :
       {R"({{"timestamp": {0}, "input_length": {1}, "hash_ids": [{2}], "session_id": {0}, "block_size": 16}}
)",
        R"({{"chat_id": {0}, "parent_chat_id": -1, "timestamp": {0}, "input_length": {1}, "hash_ids": [{2}]}}
)",
        R"({{"instance_id": "i{3}", "timestamp_us": {0}, "keys": [{2}], "input_len": {1}}}
)"}) {
    write_lines(4'000, form);
    const std::int64_t few = most_bytes();
    write_lines(32'000, form);
    BOOST_TEST(most_bytes() <= few + 1'024);  // lines with larger numbers are a little longer
    BOOST_TEST(few < (std::int64_t{4} << 20));
  }
}

BOOST_AUTO_TEST_CASE(a_ctrace_that_is_streamed_takes_the_memory_of_its_latest_chains_however_long_it_is) {
  write_ctrace(20'000);
  const std::int64_t few = most_bytes();
  write_ctrace(160'000);
  BOOST_TEST(most_bytes() <= few + (std::int64_t{1} << 20));
  BOOST_TEST(few < (std::int64_t{64} << 20));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::replay
