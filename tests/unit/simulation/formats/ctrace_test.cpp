#include "simulation/formats/ctrace.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/checksum.hpp"
#include "simulation/formats/ctrace_layout.hpp"
#include "tests/support/step_cost.hpp"

namespace cenote::formats::ctrace {

namespace {

using simulation::chain_access;
using simulation::trace;

using file_bytes = std::vector<std::byte>;

auto fields(const trace::entry& entry) {
  return std::tie(entry.first, entry.count, entry.tokens, entry.time_ms, entry.partial, entry.access, entry.instance,
                  entry.session, entry.engine_blocks);
}

bool are_equal(const trace& one, const trace& other) {
  return one.block_tokens() == other.block_tokens() && one.tokens() == other.tokens() &&
         one.asked_blocks() == other.asked_blocks() && one.stores_all() == other.stores_all() &&
         std::ranges::equal(one.stream(), other.stream()) && std::ranges::equal(one.identities(), other.identities()) &&
         std::ranges::equal(one.requests(), other.requests(), [&](const auto& left, const auto& right) {
           return fields(left) == fields(right) && std::ranges::equal(one.ids(left), other.ids(right));
         });
}

/// Requests of all kinds: prefixes of earlier ones, blocks from anywhere, one by one and in rows.
class trace_maker {
 public:
  explicit trace_maker(unsigned seed) : random_(seed) {}

  trace make(std::size_t count) {
    trace made(1 + drawn(3) * drawn(40));
    wide_ = drawn(2) == 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<std::uint64_t> ids = chain(made);
      const std::uint64_t full = ids.size() * made.block_tokens();
      const std::uint64_t cut = ids.empty() ? 0 : drawn(made.block_tokens());
      made.add({.time_ms = time_ += drawn(3) * drawn(1'000),
                .tokens = drawn(2) == 0 ? full - cut : full + drawn(5 * made.block_tokens()),
                .count = ids.size(),
                .access = static_cast<chain_access>(drawn(3)),
                .instance = first_number(instances_),
                .session = first_number(sessions_)},
               ids);
    }
    return made;
  }

 private:
  std::uint64_t drawn(std::uint64_t end) { return random_() % end; }

  std::uint32_t first_number(std::uint32_t& numbers) {
    const auto number = static_cast<std::uint32_t>(drawn(numbers + 1));
    numbers = std::max(numbers, std::min(number + 1, 5U));
    return std::min(number, 4U);
  }

  std::vector<std::uint64_t> chain(const trace& earlier_ones) {
    std::vector<std::uint64_t> ids;
    std::set<std::uint64_t> all;
    const auto append = [&](std::uint64_t id) {
      if (all.insert(id).second) ids.push_back(id);
    };
    if (!earlier_ones.requests().empty() && drawn(4) != 0) {
      const auto earlier = earlier_ones.ids(earlier_ones.requests()[drawn(earlier_ones.requests().size())]);
      for (const std::uint64_t id : std::span(earlier).first(drawn(earlier.size() + 1))) append(id);
    }
    for (std::uint64_t pieces = drawn(4); pieces > 0; --pieces) {
      const std::uint64_t start = drawn(3) == 0 ? drawn(60) : next_ += drawn(3);
      for (std::uint64_t i = 0; i < drawn(12); ++i) append(wide_ ? (start + i) * 0x9e3779b97f4a7c15ULL : start + i);
      next_ += drawn(12);
    }
    return ids;
  }

  std::mt19937_64 random_;
  bool wide_ = false;
  std::uint64_t next_ = 60;
  std::uint64_t time_ = 0;
  std::uint32_t instances_ = 0;
  std::uint32_t sessions_ = 0;
};

file_bytes encoded(const trace& requests, const facts& facts = {}) {
  auto bytes = encode(requests, facts);
  BOOST_REQUIRE_MESSAGE(bytes, (bytes ? "" : bytes.error().message()));
  return std::move(*bytes);
}

std::string fault_of(const file_bytes& file, const reading& reading = {}) {
  const auto read = decode(file, reading);
  return read ? "" : read.error().message();
}

/// A file in memory that may fail.
class bytes_at_places final : public placed_bytes {
 public:
  explicit bytes_at_places(file_bytes bytes = {}) : bytes_(std::move(bytes)) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] result<void> read(std::uint64_t offset, std::span<std::byte> target) override {
    BOOST_REQUIRE(offset + target.size() <= bytes_.size());
    if (fails_at_read) return fail(error_code::system, "the file cannot be read");
    std::ranges::copy(std::span(bytes_).subspan(offset, target.size()), target.begin());
    return {};
  }
  [[nodiscard]] result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    BOOST_REQUIRE(offset == bytes_.size());
    if (bytes_.size() + bytes.size() > room) return fail(error_code::system, "the disk is full");
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }

  std::size_t room = ~std::size_t{0};
  bool fails_at_read = false;

 private:
  file_bytes bytes_;
};

struct passed_requests {
  std::vector<trace::arrival> arrivals;
  std::vector<std::vector<std::uint32_t>> chains;
  result<passed> outcome;
  std::uint64_t spilled_blocks = 0;  ///< bytes
  std::uint64_t spilled_ends = 0;
};

passed_requests pass_all(const file_bytes& file, std::size_t kept_blocks, std::size_t kept_requests) {
  passed_requests all;
  bytes_at_places opened(file);
  bytes_at_places blocks;
  bytes_at_places ends;
  all.outcome = pass_requests(
      opened, {.blocks = blocks, .ends = ends, .kept_blocks = kept_blocks, .kept_requests = kept_requests},
      [&](const trace::arrival& request, std::span<const std::uint32_t> chain, std::uint64_t /*block_tokens*/) {
        all.arrivals.push_back(request);
        all.chains.emplace_back(chain.begin(), chain.end());
        return result<void>{};
      });
  all.spilled_blocks = blocks.size();
  all.spilled_ends = ends.size();
  return all;
}

/// Writes the checksum of a changed head.
void seal(file_bytes& file) {
  const std::uint64_t sum = checksum_of(file.data(), offsetof(file_header, checksum));
  std::memcpy(file.data() + offsetof(file_header, checksum), &sum, sizeof(sum));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_files)

BOOST_AUTO_TEST_CASE(what_is_written_is_read_again) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      const trace made = trace_maker(seed).make(seed % 60);
      const auto read = decode(encoded(made, {.lines = 70, .left_out = 3, .full_blocks = seed % 2 == 0}));
      BOOST_REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
      BOOST_TEST(are_equal(read->requests, made));
      BOOST_TEST((read->facts.lines == 70 && read->facts.left_out == 3 && !read->facts.anonymised));
      BOOST_TEST((read->facts.full_blocks == (seed % 2 == 0) && !read->facts.seed));
    }
  }
}

BOOST_AUTO_TEST_CASE(requests_of_many_frames_are_read_again) {
  trace made(16);
  std::mt19937_64 random(3);
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    std::vector<std::uint64_t> ids(i % 100 + 1);
    for (std::uint64_t& each : ids) each = random();
    if (i > 2'000) ids.front() = made.ids(made.requests()[i - 1'500]).front();
    made.add({.time_ms = i, .tokens = 16 * ids.size()}, ids);
  }
  const file_bytes file = encoded(made);
  file_trailer trailer;
  std::memcpy(&trailer, file.data() + file.size() - sizeof(trailer), sizeof(trailer));
  BOOST_TEST(trailer.frames > 3U);
  const auto read = decode(file);
  BOOST_REQUIRE(read);
  BOOST_TEST(are_equal(read->requests, made));
}

BOOST_AUTO_TEST_CASE(a_trace_that_was_read_grows_as_any_other) {
  trace made = trace_maker(11).make(40);
  trace read = decode(encoded(made))->requests;
  const trace::arrival more{.time_ms = 1'000'000, .tokens = made.block_tokens() * 3, .count = 3};
  const std::vector<std::uint64_t> ids{made.identities()[2], ~std::uint64_t{0}, made.identities()[0]};
  made.add(more, ids);
  read.add(more, ids);
  BOOST_TEST(are_equal(read, made));
}

BOOST_AUTO_TEST_CASE(full_blocks_and_first_requests_are_those_of_the_trace) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      trace made(16);
      for (const trace whole = trace_maker(seed).make(50); const trace::entry& each : whole.requests()) {
        const auto ids = whole.ids(each);  // one access: what a read and a write become is another test's
        made.add({.time_ms = each.time_ms, .tokens = ids.size() * 16 - (ids.empty() ? 0 : seed % 16)}, ids);
      }
      const file_bytes file = encoded(made);
      BOOST_TEST(are_equal(decode(file, {.full_blocks = true})->requests, made.full_blocks(50)));
      BOOST_TEST(are_equal(decode(file, {.full_blocks = true, .limit = 20})->requests, made.full_blocks(20)));
      BOOST_TEST(are_equal(decode(file, {.limit = 7})->requests, made.first(7)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_read_and_a_write_that_differ_by_a_cut_block_become_one_request) {
  trace made(16);
  made.add({.tokens = 40, .access = chain_access::read}, std::vector<std::uint64_t>{1, 2, 3});
  made.add({.tokens = 32, .access = chain_access::write}, std::vector<std::uint64_t>{1, 2});
  const trace full = decode(encoded(made), {.full_blocks = true})->requests;
  BOOST_REQUIRE(full.requests().size() == 1U);
  BOOST_TEST((full.requests()[0].access == chain_access::both));
  BOOST_TEST(full.requests()[0].tokens == 40U);
  BOOST_TEST(full.distinct() == 2U);
}

BOOST_AUTO_TEST_CASE(instances_and_sessions_are_numbered_as_they_first_come) {
  trace made(16);
  for (const std::uint32_t name : {900U, 7U, 900U, 4'000'000'000U}) {
    made.add({.tokens = 16, .instance = name, .session = name + 1}, std::vector<std::uint64_t>{name});
  }
  const trace read = decode(encoded(made))->requests;
  const std::vector<std::uint32_t> expected{0, 1, 0, 2};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(read.requests()[i].instance == expected[i]);
    BOOST_TEST(read.requests()[i].session == expected[i]);
  }
}

BOOST_AUTO_TEST_CASE(made_identities_hide_those_of_the_trace) {
  const trace made = trace_maker(5).make(50);
  std::set<std::uint64_t> all(made.identities().begin(), made.identities().end());
  for (const std::uint64_t seed : {1ULL, 1ULL << 40, ~0ULL << 20}) {
    const auto read = decode(encoded(made, {.anonymised = true, .seed = seed}));
    BOOST_REQUIRE(read);
    BOOST_TEST(read->facts.anonymised);
    BOOST_TEST((read->facts.seed == seed));
    BOOST_TEST(std::ranges::equal(read->requests.stream(), made.stream()));
    for (const std::uint64_t each : read->requests.identities()) BOOST_TEST(all.insert(each).second);
  }
}

BOOST_AUTO_TEST_CASE(a_changed_byte_is_noticed) {
  const trace made = trace_maker(9).make(12);
  const file_bytes file = encoded(made);
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const unsigned bits : {0x01U, 0x80U, 0xffU}) {
      file_bytes changed = file;
      changed[at] ^= static_cast<std::byte>(bits);
      BOOST_TEST(!decode(changed).has_value(), "byte " << at << " by " << bits);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_was_cut_is_noticed) {
  file_bytes file = encoded(trace_maker(9).make(12));
  for (std::size_t size = 0; size < file.size(); ++size) {
    BOOST_TEST(!decode(std::span(file).first(size)).has_value(), "the first " << size);
  }
  BOOST_TEST(fault_of({file.begin(), file.end() - 1}) == "the end is cut off or damaged");
  file.push_back(std::byte{0});
  BOOST_TEST(!decode(file).has_value());
}

BOOST_AUTO_TEST_CASE(bytes_behind_right_checksums_give_an_error_or_a_trace) {
  const trace made = trace_maker(21).make(30);
  const file_bytes file = encoded(made);
  frame_head head;
  std::memcpy(&head, file.data() + sizeof(file_header), sizeof(head));
  const std::size_t packed = sizeof(file_header) + sizeof(head);
  const std::size_t index = packed + head.packed;
  unsigned read = 0;
  for (std::size_t at = 0; at < head.packed; ++at) {
    for (unsigned change = 0; change < 256 / cenote::testing::step_cost; ++change) {
      file_bytes changed = file;
      changed[packed + at] ^= static_cast<std::byte>(change * cenote::testing::step_cost);
      head.checksum = checksum_of(changed.data() + packed, head.packed);
      std::memcpy(changed.data() + sizeof(file_header), &head, sizeof(head));
      std::memcpy(changed.data() + index, &head, sizeof(head));
      const std::uint64_t sum = checksum_of(&head, sizeof(head));
      std::memcpy(changed.data() + index + sizeof(head) + sizeof(std::uint64_t), &sum, sizeof(sum));
      const auto decoded = decode(changed);
      read += decoded ? 1 : 0;
      if (!decoded) continue;
      BOOST_REQUIRE(decoded->requests.requests().size() == made.requests().size());
      BOOST_REQUIRE(decoded->requests.distinct() == made.distinct());
      const auto stream = decoded->requests.stream();
      BOOST_REQUIRE(std::ranges::all_of(stream, [&](std::uint32_t each) { return each < made.distinct(); }));
    }
  }
  BOOST_TEST(read >= head.packed);  // at least where nothing changed
}

BOOST_AUTO_TEST_CASE(what_takes_too_much_memory_is_refused_before_it_is_read) {
  const file_bytes file = encoded(trace_maker(9).make(12));
  BOOST_TEST(fault_of(file, {.most_bytes = 1'000}).find("bytes of memory, and there are 1000") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_memory_of_blocks_with_identities_counts_what_is_checked_of_them) {
  constexpr std::uint64_t blocks = 1'000;
  trace made(16);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < blocks; ++i) ids.push_back(i * 3);
  made.add({.tokens = 16 * blocks}, ids);
  const auto needed = [&](const file_bytes& file) {
    std::uint64_t low = 0, high = std::uint64_t{1} << 30;
    while (low + 1 < high) {
      const std::uint64_t middle = (low + high) / 2;
      (fault_of(file, {.most_bytes = middle}).empty() ? high : low) = middle;
    }
    return high;
  };
  const std::uint64_t kept = needed(encoded(made));
  BOOST_TEST(kept - needed(encoded(made, {.seed = 5})) == blocks * 24);  // two runs, less a new number
  BOOST_TEST(kept >= (std::uint64_t{16} << 20) + blocks * (12 + 8 + 36));
}

BOOST_AUTO_TEST_CASE(requests_are_passed_on_as_they_are_read_whole_however_few_stay_in_memory) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      const trace made = trace_maker(seed).make(seed % 90);
      const std::size_t kept = 1 + seed % 7 * 5;
      const auto passed = pass_all(encoded(made, {.lines = 70, .left_out = 3}), kept, 1 + seed % 4);
      BOOST_REQUIRE_MESSAGE(passed.outcome, (passed.outcome ? "" : passed.outcome.error().message()));
      BOOST_TEST(passed.outcome->block_tokens == made.block_tokens());
      BOOST_TEST((passed.outcome->facts.lines == 70 && passed.outcome->facts.left_out == 3));
      BOOST_REQUIRE(passed.chains.size() == made.requests().size());
      for (std::size_t i = 0; i < passed.chains.size(); ++i) {
        const trace::entry& each = made.requests()[i];
        BOOST_TEST(std::ranges::equal(passed.chains[i], made.blocks(each)));
        BOOST_TEST((passed.arrivals[i].tokens == each.tokens && passed.arrivals[i].time_ms == each.time_ms &&
                    passed.arrivals[i].access == each.access && passed.arrivals[i].instance == each.instance));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_but_the_latest_chains_lie_in_the_file) {
  trace made(16);
  std::vector<std::uint64_t> chain;
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    if (i % 50 == 0) chain = {0};
    chain.push_back(1 + i);
    made.add(i, chain.size() * 16, chain);
  }
  constexpr std::size_t kept = 1'000;
  const auto passed = pass_all(encoded(made), kept, 100);
  BOOST_REQUIRE(passed.outcome.has_value());
  const std::uint64_t in_memory = made.stream().size() - passed.spilled_blocks / sizeof(std::uint32_t);
  BOOST_TEST(in_memory <= 2 * kept);
  BOOST_TEST(made.requests().size() - passed.spilled_ends / sizeof(std::uint64_t) <= 200U);
}

BOOST_AUTO_TEST_CASE(a_file_of_older_chains_that_fails_is_no_fault_of_the_trace) {
  const trace made = trace_maker(7).make(89);
  bytes_at_places opened(encoded(made));
  const passed_listener nobody = [](const auto&, std::span<const std::uint32_t>, std::uint64_t) {
    return result<void>{};
  };
  bytes_at_places full;
  full.room = 20;
  bytes_at_places ends;
  auto outcome = pass_requests(opened, {.blocks = full, .ends = ends, .kept_blocks = 1, .kept_requests = 1}, nobody);
  BOOST_TEST((!outcome && outcome.error().message() == "the disk is full"));
  bytes_at_places broken;
  broken.fails_at_read = true;
  bytes_at_places more_ends;
  outcome = pass_requests(opened, {.blocks = broken, .ends = more_ends, .kept_blocks = 1, .kept_requests = 1}, nobody);
  BOOST_TEST((!outcome && outcome.error().message() == "the file cannot be read"));
}

BOOST_AUTO_TEST_CASE(chains_that_take_more_room_than_there_is_are_refused_before_the_first_request) {
  const trace made = trace_maker(7).make(89);
  bytes_at_places opened(encoded(made));
  bytes_at_places blocks;
  bytes_at_places ends;
  const passed_listener nobody = [](const auto&, std::span<const std::uint32_t>, std::uint64_t) -> result<void> {
    return fail(error_code::internal, "a request came");
  };
  const std::uint64_t needed = made.stream().size() * 4 + made.requests().size() * 8;
  const auto outcome = pass_requests(
      opened, {.blocks = blocks, .ends = ends, .kept_blocks = 1, .kept_requests = 1, .room = needed - 1}, nobody);
  BOOST_REQUIRE(!outcome.has_value());
  BOOST_TEST((outcome.error().code() == error_code::limit_exceeded));
  BOOST_TEST(outcome.error().message().find("of temporary files") != std::string::npos);
  const auto small = pass_requests(opened, {.blocks = blocks, .ends = ends, .room = 0}, nobody);
  BOOST_TEST(small.error().message() == "a request came");
}

BOOST_AUTO_TEST_CASE(a_listener_ends_the_passing) {
  bytes_at_places opened(encoded(trace_maker(7).make(89)));
  bytes_at_places blocks;
  bytes_at_places ends;
  int taken = 0;
  const auto outcome = pass_requests(opened, {.blocks = blocks, .ends = ends},
                                     [&](const auto&, std::span<const std::uint32_t>, std::uint64_t) -> result<void> {
                                       if (++taken == 5) return fail(error_code::unsupported, "enough");
                                       return {};
                                     });
  BOOST_TEST((!outcome && outcome.error().message() == "enough"));
}

BOOST_AUTO_TEST_CASE(what_is_damaged_is_refused_while_it_is_passed_on) {
  const trace made = trace_maker(11).make(60);
  const file_bytes whole = encoded(made);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    file_bytes changed = whole;
    changed[at] ^= std::byte{0x10};
    BOOST_TEST(!pass_all(changed, 4, 2).outcome.has_value());
    BOOST_TEST(!pass_all(file_bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)), 4, 2)
                    .outcome.has_value());
  }
}

BOOST_AUTO_TEST_CASE(another_version_is_named) {
  file_bytes file = encoded(trace_maker(9).make(12));
  file[offsetof(file_header, version)] = std::byte{3};
  seal(file);
  BOOST_TEST(fault_of(file) == "version 3 of .ctrace; this program reads versions 1 and 2");
}

BOOST_AUTO_TEST_CASE(a_head_with_other_counts_is_refused) {
  for (const std::size_t field :
       {offsetof(file_header, requests), offsetof(file_header, references), offsetof(file_header, blocks),
        offsetof(file_header, tokens), offsetof(file_header, size), offsetof(file_header, left_out)}) {
    file_bytes file = encoded(trace_maker(9).make(12), {.lines = 12});
    file[field] ^= std::byte{0x10};
    seal(file);
    BOOST_TEST(!decode(file).has_value(), "field at " << field);
  }
}

BOOST_AUTO_TEST_CASE(blocks_that_engines_had_are_kept) {
  trace made(16);
  for (const std::uint32_t engine_blocks : {0U, 2U, 3U, 9U})
    made.add({.tokens = 48, .engine_blocks = engine_blocks}, std::vector<std::uint64_t>{1, 2, 3});
  BOOST_TEST(made.requests()[3].engine_blocks == 3U);
  const file_bytes file = encoded(made);
  const auto read = decode(file);
  BOOST_REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  BOOST_TEST(are_equal(read->requests, made));
  BOOST_TEST((file[offsetof(file_header, version)] == std::byte{2}));
  trace cut(16);
  cut.add({.tokens = 40, .engine_blocks = 3}, std::vector<std::uint64_t>{1, 2, 3});
  BOOST_TEST(decode(encoded(cut), {.full_blocks = true})->requests.requests()[0].engine_blocks == 2U);
}

BOOST_AUTO_TEST_CASE(names_of_instances_follow_their_numbers) {
  trace made(16);
  const auto ask = [&](std::uint32_t instance) {
    made.add({.tokens = 16, .instance = instance}, std::vector<std::uint64_t>{instance + 1U});
  };
  for (const std::uint32_t instance : {4U, 1U, 4U, 2U}) ask(instance);
  const std::vector<std::string> names{"unused", "code", "rag \u00fc", "", "chat"};
  const file_bytes file = encoded(made, {.instances = names});
  const auto read = decode(file);
  BOOST_REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  BOOST_TEST(read->facts.instances == (std::vector<std::string>{"chat", "code", "rag \u00fc"}),
             boost::test_tools::per_element());
  BOOST_TEST(read->requests.requests()[3].instance == 2U);
  BOOST_TEST((encoded(read->requests, read->facts) == file));
  BOOST_TEST(decode(encoded(made))->facts.instances.empty());
  BOOST_TEST(encode(made, {.instances = {"a", "b"}}).error().message() == "instance 4 has no name, others have one");
}

BOOST_AUTO_TEST_CASE(names_of_many_frames_are_read_again) {
  trace made(16);
  std::vector<std::string> names;
  constexpr std::uint32_t count = 20'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    made.add({.tokens = 16, .instance = i}, std::vector<std::uint64_t>{i});
    names.push_back(std::to_string(i) + std::string(40, 'x'));
  }
  const file_bytes file = encoded(made, {.instances = names});
  BOOST_TEST(decode(file)->facts.instances == names, boost::test_tools::per_element());
  BOOST_TEST(fault_of(file, {.most_bytes = 2'000'000}).find("bytes of memory") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_that_fit_no_instances_are_refused) {
  trace made(16);
  for (const std::uint32_t instance : {0U, 1U})
    made.add({.tokens = 16, .instance = instance}, std::vector<std::uint64_t>{instance + 1U});
  BOOST_TEST(fault_of(encoded(made, {.instances = {"a", "a"}})) == "two instances have one name");
  file_bytes file = encoded(made, {.instances = {"a", "b"}});
  file[offsetof(file_header, version)] = std::byte{1};
  seal(file);
  BOOST_TEST(fault_of(file) == "the head is damaged");
  file_bytes nameless = encoded(made);
  nameless[offsetof(file_header, version)] = std::byte{2};
  nameless[offsetof(file_header, flags)] |= std::byte{8};
  seal(nameless);
  BOOST_TEST(fault_of(nameless) == "there are fewer names than instances");
}

BOOST_AUTO_TEST_CASE(what_no_reader_takes_is_not_written) {
  trace twice(16);
  twice.add({.tokens = 48}, std::vector<std::uint64_t>{1, 2, 1});
  BOOST_TEST(encode(twice, {}).error().message() == "request 0 has a block twice");
  trace narrow(16);
  narrow.add({.tokens = 16}, std::vector<std::uint64_t>{1, 2});
  BOOST_TEST(encode(narrow, {}).error().message() == "request 0 has 16 tokens and 2 blocks");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::formats::ctrace
