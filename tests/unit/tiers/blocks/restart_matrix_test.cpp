// The restart matrix: a worker is killed right after each of its stores to shared memory, and the next one takes over.
//
// The points come from the sources (scripts/store_points.py); one that the work below never passes fails the test, and
// so does one behind which nobody dies. Each is killed at its first, middle and last passing; a new worker's own stores
// are killed as well, and a third worker takes over then.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memory/lower_hints.hpp"
#include "memory/store_point.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/step_cost.hpp"
#include "tests/unit/tiers/blocks/killed_worker.hpp"
#include "tests/unit/tiers/blocks/random_work.hpp"

namespace cenote::blocks::restart_matrix_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::operation;

namespace {

constexpr std::uint64_t block = 8192;
constexpr std::uint64_t slab_bytes = 16 * block;
constexpr std::uint64_t keys = 300;

bool full_counts() {
  return std::getenv("CENOTE_TEST_FULL") != nullptr;
}

/// One name a line, as scripts/store_points.py writes them.
std::vector<std::string> points_of_the_sources() {
  std::ifstream in(cenote::testing::program_folder() / "store_points.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);) names.push_back(line);
  return names;
}

// ---------------------------------------------------------------------------------------------- who dies where

/// Shared with the worker that dies: which points it passed.
struct passings {
  static constexpr std::size_t most = 256;
  std::uint64_t counts[most];    ///< by a worker that carries out the work
  std::uint64_t target;          ///< the point behind which it dies …
  std::uint64_t target_passing;  ///< … and at which passing; 0: nowhere
  std::uint64_t recovering;    ///< not 0: a worker that takes over dies behind the first point with `deaths` below this
  std::uint64_t deaths[most];  ///< of workers that took over
  std::uint64_t unknown;       ///< a point that is not in the list was passed
};

passings* board = nullptr;
const std::vector<std::string>* all_points = nullptr;

void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void on_point(store_point at) noexcept {
  if (at.name().empty()) return;  // the fixture's own
  const auto found =
      std::ranges::lower_bound(*all_points, at.name(), {}, [](const auto& s) { return std::string_view(s); });
  if (found == all_points->end() || *found != at.name()) {
    const auto what = at.name().substr(0, at.name().find('.'));
    constexpr std::array<std::string_view, 6> elsewhere{"session", "keeper",   "worker",
                                                        "header",  "instance", "records"};  // a whole node's
    if (std::ranges::find(elsewhere, what) == elsewhere.end()) board->unknown = 1;
    return;
  }
  const auto point = static_cast<std::size_t>(found - all_points->begin());
  if (board->recovering != 0) {
    if (board->deaths[point] >= board->recovering) return;
    ++board->deaths[point];
    die();
  }
  if (++board->counts[point] == board->target_passing && board->target == point) die();
}

/// At which passings of `count` to die.
std::vector<std::uint64_t> passings_of(std::uint64_t count) {
  if (count == 0) return {};
  std::vector<std::uint64_t> chosen{std::max<std::uint64_t>(1, count / 2)};
  if (cenote::testing::step_cost == 1) chosen.insert(chosen.end(), {1, count});
  for (std::uint64_t i = 1; full_counts() && i < 16; ++i) chosen.push_back(std::max<std::uint64_t>(1, count * i / 16));
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// ---------------------------------------------------------------------------------------------- the work

/// What the dying worker's clients and disks had under way.
struct under_way {
  static constexpr std::size_t most = 512;
  struct writer {
    session_number by;
    block_ref block;
    std::uint32_t version;
    std::uint64_t parts;
    instance_number in;
  };
  writer writers[most];
  std::uint32_t writer_count;
  std::uint32_t loads[most];  ///< records whose read may still land
  std::uint32_t load_count;
  session_number buried;
};

template <class T>
T* shared() {
  void* made = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BOOST_REQUIRE(made != MAP_FAILED);
  return static_cast<T*>(made);
}

store_options matrix_options() {
  auto options = options_of(8 * (slab_bytes + 4096), slab_bytes);
  options.groups = {{"team", {.quota = 90 * block, .ttl = tenths(300), .keep = {key_of(5, 13)}}}};
  options.reserve_timeout = tenths(50);
  options.checksum_at_commit = true;
  options.high_water = 0.9;
  options.low_water = 0.8;
  options.edges = {{.ingest = ingest::evicted,
                    .keep_copy = true,
                    .write_window = 14 * block,
                    .read_window = 8 * block,
                    .write_ahead = 0.2}};
  return options;
}

/// Two parts, several sessions, a tier below with transfers under way, from the same seed each time.
class matrix_node {
 public:
  explicit matrix_node(under_way& state)
      : state_(state),
        at(matrix_options()),
        a(at.add(spec_of("a", block, 2, "team"))),
        b(at.add(spec_of("b", block, 1, "team"))),
        c(at.add(spec_of("c", block, 1))),
        work(at, 7, keys),
        watcher(at, a, 32) {
    state_.writer_count = state_.load_count = 0;
    state_.buried = 0;
    work.may_drop_sessions = false;
    for (const instance_number in : {a, a, b, c}) work.add_client(in);
    dying = std::make_unique<client>(at, a, 32);
    for (std::uint64_t n = 0; n < 40; ++n) (void)watcher.put(key_of(n, 8 + n % 57));
    for (std::uint64_t n = 0; n < 6; ++n) {
      const full_key key = key_of(n, 8 + n % 57);
      if (const auto slot = watcher.pin(key)) watched.emplace_back(*slot, key);
    }
    work.on_writing = [this](const random_work::held& what, bool begins) {
      const client& by = *work.clients()[what.who];
      note_writer({by.number, what.block.ref, what.block.version, what.parts, by.in}, begins);
    };
  }

  /// All that a worker does. What is wrong, in words.
  std::string run() {
    bind();
    for (int step = 0; step < 260; ++step) {
      if (step % 6 == 0) lower_work(step);
      if (auto wrong = work.step(); !wrong.empty()) return wrong;
    }
    clients_die();
    churn();
    settings_change();
    for (int step = 0; step < 60; ++step) {
      if (step % 6 == 0) lower_work(step);
      if (auto wrong = work.step(); !wrong.empty()) return wrong;
    }
    watcher.ask({watcher.entry_of(operation::clear, blank{})});
    at.tier->clear_all(at.now);
    return {};
  }

  void note_writer(const under_way::writer& what, bool begins) {
    if (begins) {
      if (state_.writer_count < under_way::most) state_.writers[state_.writer_count++] = what;
      return;
    }
    for (std::uint32_t i = 0; i < state_.writer_count; ++i) {
      const auto& each = state_.writers[i];
      if (each.by != what.by || !(each.block == what.block) || each.version != what.version || each.parts != what.parts)
        continue;
      state_.writers[i] = state_.writers[--state_.writer_count];
      return;
    }
  }

 private:
  under_way& state_;

 public:
  node at;
  instance_number a, b, c;
  random_work work;
  client watcher;
  std::unique_ptr<client> dying;
  std::vector<std::pair<std::uint32_t, full_key>> watched;

 private:
  struct bound {
    instance_number in;
    memory::hint_writer hints;
  };

  void bind() {
    for (auto& each : at.tier->take_bindings())
      hints_.push_back({each.number, std::move(*memory::hint_writer::open(std::move(each.index), 20))});
    // Keys that were never in DRAM, more of one home than it has places.
    std::vector<block_key> strangers;
    for (std::uint64_t n = 30'000; strangers.size() < 20; ++n) {
      const block_key key = reduce_key(key_of(n).view(), 0);
      if (memory::index_reader::home_slot(key, memory::hints::buckets_for(20)) == 0) strangers.push_back(key);
    }
    for (const block_key& key : strangers) hints_of(c)->add(key);
    for (const block_key& key : strangers) hints_of(c)->erase(key);
  }
  memory::hint_writer* hints_of(instance_number instance) {
    for (auto& each : hints_) {
      if (each.in == instance) return &each.hints;
    }
    return nullptr;
  }

  /// The tier below: takes what leaves, brings up what is asked for. Some transfers stay under way.
  void lower_work(int step) {
    at.now += tenths(2);
    at.tier->evict_ahead(at.now);
    for (auto& each : at.tier->take_demotions()) writing_.push_back(each);
    std::vector<transfer_outcome> outcomes;
    while (writing_.size() > 3) {
      const transfer& each = writing_.front();
      const bool kept = step % 4 != 0;
      if (kept && below_.size() < 400) {
        hints_of(each.instance)->add(each.key);
        below_.emplace_back(each.instance, each.full);
      }
      outcomes.push_back({each.token, kept ? transfer_result::done : transfer_result::dropped});
      writing_.erase(writing_.begin());
    }
    for (std::size_t i = 0; i < 4 && !below_.empty(); ++i) {
      const auto& [in, full] = below_[(static_cast<std::size_t>(step) * 7 + i) % below_.size()];
      (void)at.tier->load(in, 0, full, at.now);
    }
    for (auto& each : at.tier->take_loads()) {
      const std::uint32_t record = record_of(each);
      if (state_.load_count < under_way::most) state_.loads[state_.load_count++] = record;
      loading_.push_back(each);
    }
    while (loading_.size() > 2) {
      const transfer each = loading_.front();
      loading_.erase(loading_.begin());
      fill(each.memory.data(), block, each.full);
      forget_load(record_of(each));
      outcomes.push_back({each.token, step % 5 == 0 ? transfer_result::failed : transfer_result::done});
    }
    at.tier->transferred(outcomes, at.now);
    at.pump();
    if (below_.size() > 55) {
      const auto [in, full] = below_.front();
      below_.erase(below_.begin());
      const block_key key = reduce_key(full.view(), 0);
      hints_of(in)->erase(key);
      const lost_block lost{in, key};
      at.tier->forget_copies(std::span(&lost, 1));
    }
  }
  /// Of a load that is under way.
  std::uint32_t record_of(const transfer& load) const {
    for (const auto& [place, kept] : at.slabs) {
      for (std::uint32_t n = 0; place.first == load.instance && n < kept.what.count; ++n) {
        const auto& record = at.record(place.first, block_ref(place.second, n));
        if (record.state() == block_state::loading && record.get_key() == load.full) return kept.what.first_record + n;
      }
    }
    return ~std::uint32_t{0};
  }
  void forget_load(std::uint32_t record) {
    for (std::uint32_t i = 0; i < state_.load_count; ++i) {
      if (state_.loads[i] == record) state_.loads[i] = state_.loads[--state_.load_count];
    }
  }

  /// A connection ends, and a process that holds pins, grants and half of a block, the other half being another's.
  void clients_die() {
    (void)dying->grant(4);
    (void)dying->take();
    const full_key half = key_of(9'000);
    const auto mine = dying->reserve(half, 1);
    client& other = *work.clients()[0];
    const auto theirs = other.reserve(half, 2);
    if (theirs.kind == memory::completion_kind::reserved) {
      note_writer({other.number, block_ref::from_bits(theirs.block), theirs.grant_version, 2, a}, true);
    }
    (void)mine;
    (void)dying->pin(key_of(1, 9));
    watcher.remove(key_of(1, 9));       // pinned by it and by the watcher
    (void)work.clients()[2]->grant(2);  // which end with its connection
    at.tier->disconnect_session(work.clients()[2]->number, at.now);
    state_.buried = dying->number;  // dead, whatever its worker knows of it
    at.bury(dying->number);
  }

  /// More keys than an index begins with, one after the other, so that it grows.
  void churn() {
    client& by = *work.clients()[3];
    for (std::uint64_t n = 0; n < 1'400; n += 8) {
      std::vector<full_key> some;
      for (std::uint64_t k = n; k < n + 8; ++k) some.push_back(key_of(20'000 + k));
      (void)by.put(some);
      if (n % 64 == 0) lower_work(static_cast<int>(n / 8));
    }
    at.tier->tick(at.now);
    at.tier->tick(at.now);
  }

  void settings_change() {
    (void)at.tier->set_policy("s3fifo", at.now);
    auto groups = matrix_options().groups;
    groups.at("team").keep = {key_of(6, 14), key_of(7, 15)};
    at.tier->set_groups(groups, at.now);
    for (auto& each : hints_) {
      each.hints.clear();
    }
    below_.clear();
    at.now += tenths(100);
    at.tier->tick(at.now);  // reservations end
    at.now += tenths(400);
    at.tier->tick(at.now);  // blocks of the group end
  }

  std::vector<bound> hints_;
  std::vector<transfer> writing_, loading_;
  std::vector<std::pair<instance_number, full_key>> below_;
};

// ---------------------------------------------------------------------------------------------- after a death

class aftermath {
 public:
  aftermath(matrix_node& node, killed_worker& worker, under_way& state) : node_(node), worker_(worker), state_(state) {}

  /// Everything that must hold, in order of what happens. What does not, in words.
  std::string check() {
    if (auto wrong = still_right("before the next worker"); !wrong.empty()) return wrong;
    if (state_.buried != 0) node_.at.sessions.erase(state_.buried);
    late_reads();
    forge();
    take_over();
    if (auto wrong = everything("the restart"); !wrong.empty()) return wrong;
    late_reads();
    if (auto wrong = others_go_on(); !wrong.empty()) return wrong;
    if (auto wrong = repeat(); !wrong.empty()) return wrong;
    if (auto wrong = others_go_on(); !wrong.empty()) return wrong;
    return let_go();
  }

 private:
  node& at() { return node_.at; }

  /// What no death of today's workers leaves behind, and what a worker that takes over mends all the same: a key in two
  /// blocks, and a free block with a version that readers would take.
  void forge() {
    std::vector<block_ref> present, blank;
    for (const auto& [place, kept] : at().slabs) {
      for (std::uint32_t b = 0; place.first == node_.a && b < kept.what.count; ++b) {
        const block_ref ref(place.second, b);
        const auto state = at().record(node_.a, ref).state();
        if (state == block_state::present) present.push_back(ref);
        if (state == block_state::free) blank.push_back(ref);
      }
    }
    const auto& versions = at().versions(node_.a);
    const auto version_index_of = [&](block_ref ref) {
      return at().slab(node_.a, ref.slab())->first_version + ref.block();
    };
    if (!blank.empty()) {
      versions.set_version(version_index_of(blank.back()), (versions.version(version_index_of(blank.back())) | 1) + 1);
      blank.pop_back();
    }
    if (present.empty() || blank.empty()) return;
    const block_ref from = present.front();
    const block_ref to = blank.back();
    std::memcpy(at().bytes(node_.a, to), at().bytes(node_.a, from), block);
    auto& record = at().record(node_.a, to);
    record.set_key(at().record(node_.a, from).get_key());
    record.parts.store(3);
    record.flags = 0;
    record.set(block_state::present, (versions.version(version_index_of(to)) | 1) + 1);
  }

  /// A worker that dies while it takes over, and then one that does not.
  void take_over() {
    board->recovering = full_counts() ? 3 : 1;
    worker_.run_once([&](legacy&) -> std::string {
      memory::install_store_hook(&on_point);
      at().recover();
      return {};
    });
    board->recovering = 0;
    at().recover();
  }

  std::string still_right(const std::string& when) {
    for (const auto& [slot, key] : node_.watched) {
      if (!holds(node_.watcher.pinned_bytes(slot), block, key)) return "a pinned block changed; " + when;
    }
    return node_.work.read_all() < 0 ? "a wrong byte was read; " + when : std::string();
  }

  /// A dead worker's reads land after its death.
  void late_reads() {
    for (std::uint32_t i = 0; i < state_.load_count; ++i) {
      if (std::byte* bytes = bytes_of_record(state_.loads[i])) std::memset(bytes, 0xd1, block);
    }
  }
  std::byte* bytes_of_record(std::uint32_t record) {
    for (const auto& [place, kept] : at().slabs) {
      if (record - kept.what.first_record >= kept.what.count) continue;
      return kept.memory.data() + kept.what.stride * (record - kept.what.first_record);
    }
    return nullptr;
  }

  /// Who holds a block goes on to write it.
  std::string writers_go_on(const std::string& when) {
    for (std::uint32_t i = 0; i < state_.writer_count; ++i) {
      const auto& each = state_.writers[i];
      if (!at().sessions.contains(each.by) || at().slab(each.in, each.block.slab()) == nullptr) {
        if (at().sessions.contains(each.by)) return "the memory of a block that is being written went; " + when;
        continue;
      }
      const auto& record = at().record(each.in, each.block);
      if (record.grant_version.load() != each.version || record.state() != block_state::quarantined)
        return "a block that a session writes is not set aside, state " + std::to_string(int(record.state())) + "; " +
               when;
      for (std::uint64_t part = 0; part < 2; ++part) {
        const std::uint64_t bytes = each.in == node_.a ? block / 2 : block;
        if ((each.parts >> part & 1) != 0) std::memset(at().bytes(each.in, each.block) + part * bytes, 0xd2, bytes);
      }
    }
    for (const auto& by : node_.work.clients()) {
      const auto memory = at().session(by->number);
      for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
        const std::uint64_t word = memory.grant(i).word.load();
        if (memory::grant_slot::state_of(word) == memory::grant_slot::empty) continue;
        const block_ref ref = block_ref::from_bits(memory.grant(i).block.load());
        if (at().slab(by->in, ref.slab()) == nullptr) return "the memory of a granted block went; " + when;
        if (at().record(by->in, ref).state() != block_state::granted) return "a granted block is not granted; " + when;
        std::memset(at().bytes(by->in, ref), 0xd3, block);
      }
    }
    return {};
  }

  /// Whatever is served has the bytes of its key.
  std::string contents(const std::string& when) {
    for (const auto& [place, kept] : at().slabs) {
      for (std::uint32_t b = 0; b < kept.what.count; ++b) {
        const auto& record = at().record(place.first, block_ref(place.second, b));
        if (record.state() != block_state::present) continue;
        if (!holds(kept.memory.data() + kept.what.stride * b, block, record.get_key()))
          return "a block has the bytes of another key; " + when;
      }
    }
    return {};
  }

  std::string everything(const std::string& when) {
    if (auto wrong = still_right(when); !wrong.empty()) return wrong;
    if (auto wrong = contents(when); !wrong.empty()) return wrong;
    if (auto wrong = at().broken_identity(); !wrong.empty()) return wrong + "; " + when;
    if (auto wrong = writers_go_on(when); !wrong.empty()) return wrong;
    return still_right("after writers went on; " + when);
  }

  /// Other sessions take all memory that can be had.
  std::string others_go_on() {
    for (const std::size_t who : {3U, 2U}) {
      client& by = *node_.work.clients()[who];
      for (std::uint64_t n = 0; n < 140; ++n) (void)by.put(key_of(n, 8 + n % 57));
    }
    return everything("after more puts");
  }

  /// The client's ring still holds the batch; the worker that carries it out again may die once more.
  std::string repeat() {
    memory::completion first, second;
    const session_number by = worker_.log().session;
    if (worker_.log().in_flight == 0 || !at().sessions.contains(by)) return {};
    const operation what = worker_.log().entries[0].op;
    const bool answered = worker_.replay(first);
    if (auto wrong = at().broken_identity(); !wrong.empty()) return wrong + "; after the repetition";
    at().restart();
    const bool again = worker_.replay(second);
    if (auto wrong = at().broken_identity(); !wrong.empty()) return wrong + "; after the second repetition";
    if (answered != again) return "a repeated batch is answered differently";
    const auto code = static_cast<error_code>(first.code);
    const bool ends = what == operation::commit || what == operation::finish;
    if (ends && (first.code != second.code || first.value != second.value)) {
      return "operation " + std::to_string(int(what)) + " has the codes " + std::to_string(first.code) + " and " +
             std::to_string(second.code) + ", the values " + std::to_string(first.value) + " and " +
             std::to_string(second.value);
    }
    if (what == operation::commit && code != error_code::ok) return "a commit is refused when it comes again";
    if (auto wrong = contents("after the repetition"); !wrong.empty()) return wrong;
    return still_right("after the repetition");
  }

  /// Every session says what it still holds (nothing), then dies: all memory is there again.
  std::string let_go() {
    for (const auto& [slot, key] : node_.watched) node_.watcher.unpin(slot);
    node_.watched.clear();
    node_.work.unpin_all();
    state_.load_count = 0;
    at().tier->release_loading();
    if (auto wrong = node_.work.after_restart(); !wrong.empty()) return wrong;
    for (const auto& [number, kept] : at().sessions) {
      (void)at().tier->reattach_session(number, std::span<const held_parts>{});
    }
    std::vector<session_number> all;
    for (const auto& [number, kept] : at().sessions) all.push_back(number);
    for (const session_number number : all) at().bury(number);
    at().tier->clear_all(at().now);
    at().now += tenths(1000);
    at().tier->tick(at().now);
    const auto status = at().status();
    if (auto wrong = at().broken_identity(); !wrong.empty()) return wrong + "; at the end";
    if (status.used != 0) return std::to_string(status.used) + " bytes stay used when nobody is left";
    return {};
  }

  matrix_node& node_;
  killed_worker& worker_;
  under_way& state_;
};

// ---------------------------------------------------------------------------------------------- large blocks

/// Blocks so large that a slab which goes to another instance cannot be moved whole.
struct large_node {
  static constexpr std::uint64_t bytes = 4 << 20;
  static constexpr std::uint64_t slab = 5 * bytes;

  large_node() : at(options()), writer(at, at.add(spec_of("x", bytes))), thief(at, at.add(spec_of("y", bytes))) {
    for (std::uint64_t n = 0; n < 10; ++n) (void)writer.put(key_of(n));
  }
  static store_options options() {
    auto options = options_of(2 * (slab + 4096), slab);
    options.high_water = 1.0;
    return options;
  }
  std::string run() { return thief.put(key_of(100)).code == 0 ? "" : "no slab was given up"; }
  std::string check() {
    at.recover();
    if (auto wrong = at.broken_identity(); !wrong.empty()) return wrong;
    for (std::uint64_t n = 0; n < 10; ++n) {
      if (writer.read(key_of(n)) == look::wrong) return "a wrong byte was read";
    }
    if (auto wrong = run(); !wrong.empty()) return wrong;
    if (thief.read(key_of(100)) != look::right) return "what was put is not there";
    return at.broken_identity();
  }

  node at;
  client writer, thief;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(restart_matrix)

BOOST_AUTO_TEST_CASE(a_worker_that_dies_behind_any_store_leaves_nothing_wrong) {
  const auto points = points_of_the_sources();
  BOOST_REQUIRE(!points.empty());
  BOOST_REQUIRE(points.size() <= passings::most);
  all_points = &points;
  board = shared<passings>();
  auto* state = shared<under_way>();
  std::uint64_t kills = 0;
  std::vector<std::uint64_t> deaths(points.size());
  // Counts what the work passes, then dies behind each point that `wanted` names. `round`: true, if the worker died.
  const auto each_point = [&](const auto& wanted, const auto& round) {
    board->target_passing = 0;
    std::ranges::fill(board->counts, 0);
    round("counting");
    const std::vector<std::uint64_t> counts(board->counts, board->counts + points.size());
    for (std::size_t point = 0; point < points.size(); ++point) {
      if (!wanted(point)) continue;
      for (const std::uint64_t passing : passings_of(counts[point])) {
        board->target = point;
        board->target_passing = passing;
        std::ranges::fill(board->counts, 0);
        const std::string what =
            points[point] + ", passing " + std::to_string(passing) + " of " + std::to_string(counts[point]);
        BOOST_REQUIRE_MESSAGE(round(what), what << ": the worker lived on");
        ++deaths[point];
        ++kills;
      }
    }
  };
  each_point([](std::size_t) { return true; },
             [&](const std::string& what) {
               matrix_node node(*state);
               killed_worker worker(node.at, node.at.slabs.begin()->second.what, legacy::most_slabs);
               const bool died = worker.run_once([&](legacy&) {
                 memory::install_store_hook(&on_point);
                 return node.run();
               });
               const auto wrong = died ? aftermath(node, worker, *state).check() : std::string();
               if (!wrong.empty()) BOOST_ERROR(what << ": " << wrong);
               return died;
             });
  each_point([&](std::size_t point) { return deaths[point] == 0; },
             [&](const std::string& what) {
               large_node node;
               killed_worker worker(node.at, node.at.slabs.begin()->second.what, 4);
               const bool died = worker.run_once([&](legacy&) {
                 memory::install_store_hook(&on_point);
                 return node.run();
               });
               const auto wrong = died ? node.check() : std::string();
               if (!wrong.empty()) BOOST_ERROR(what << ": " << wrong);
               return died;
             });
  BOOST_TEST(board->unknown == 0U, "a point was passed that scripts/store_points.py does not know");
  for (std::size_t point = 0; point < points.size(); ++point) {
    kills += board->deaths[point];
    BOOST_TEST(deaths[point] + board->deaths[point] > 0U, "no worker died behind " << points[point]);
  }
  BOOST_TEST_MESSAGE(kills << " kills behind " << points.size() << " points");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::restart_matrix_test
