// Removals, with a real tier over real paths: what was said to be gone is gone for every later worker.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/nvme_tier.hpp"
#include "core/unique_fd.hpp"
#include "tests/actors/actor_fixture.hpp"
#include "tests/unit/tiers/nvme/temporary_directory.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/pending_removals.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t path_bytes = std::uint64_t{16} << 20;
constexpr std::size_t block_bytes = 4096;

/// What the threads of the devices say, for the test's thread to pass on.
class event_queue {
 public:
  void push(std::function<void()> event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    came_.notify_one();
  }
  /// The next one, or nothing after a while.
  std::function<void()> pop() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, 50ms, [&] { return !events_.empty(); })) return {};
    auto next = std::move(events_.front());
    events_.pop_front();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> events_;
};

/// While it lives no file of this process takes a byte: a disk that refuses all writes.
class no_writes {
 public:
  no_writes() {
    std::signal(SIGXFSZ, SIG_IGN);
    BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  no_writes(const no_writes&) = delete;
  no_writes& operator=(const no_writes&) = delete;
  ~no_writes() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

/// What all workers of one node share: paths, and the memory that the keeper holds for them.
struct machine {
  explicit machine(std::vector<std::string> names = {"one"}) {
    for (const std::string& name : names) {
      directories.push_back(root / name);
      auto memory = memory::segment::create("kept", nvme::pending_removals::kept_bytes);
      BOOST_REQUIRE(memory);
      kept.push_back(std::move(*memory));
    }
  }
  /// Path `number` cannot be opened any more: a directory is in its data file's place.
  void take_data_away(std::size_t number) const {
    const std::string data = directories[number] + "/data";
    std::filesystem::rename(data, data + ".away");
    std::filesystem::create_directory(data);
  }
  void bring_data_back(std::size_t number) const {
    const std::string data = directories[number] + "/data";
    std::filesystem::remove(data);
    std::filesystem::rename(data + ".away", data);
  }

  nvme::temporary_directory root;
  std::vector<std::string> directories;
  std::vector<memory::segment> kept;
};

/// One worker's NVMe tier, with the test in the place of the DRAM tier. One instance (number 1).
class worker {
 public:
  /// `opens`: waits until all paths are open. `binds`: the instance is attached to.
  explicit worker(machine& on, bool opens = true, bool binds = true) : system_(config_) {
    nvme::device_options options;
    options.directories = on.directories;
    options.capacity = path_bytes * on.directories.size();
    options.holder = "a node";
    options.engine = nvme::engine_kind::threads;
    for (const memory::segment& each : on.kept) {
      auto copy = memory::segment::map(std::move(*each.fd().duplicate()), each.size(), memory::access::read_write);
      BOOST_REQUIRE(copy);
      options.kept.push_back(std::move(*copy));
    }
    devices_ = std::make_shared<nvme::devices>(std::move(options), events());
    nvme::store_options store;
    store.paths = static_cast<std::uint32_t>(on.directories.size());
    tier_ = system_.spawn<nvme_tier>(std::move(store), std::map<std::string, wall_seconds>{}, devices_);
    if (binds) bind();
    opening_ = on.directories.size();
    devices_->open();
    while (opens && opening_ > 0) pass_on();
  }
  ~worker() {
    caf::anon_send_exit(tier_, caf::exit_reason::user_shutdown);
    run();
    devices_->stop();
    tier_ = nullptr;
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  /// Writes blocks down and waits until they are there.
  void store(std::uint64_t first, std::uint64_t count) {
    const auto before = report()->store.counters.written;
    caf::anon_send(tier_, write_atom_v, transfers(first, count));
    run();
    while (report()->store.counters.written < before + count) pass_on();
  }
  /// Asks for a removal of keys, or of the whole instance (nothing), and returns the answer.
  std::optional<outcome> remove(const std::vector<std::uint64_t>& numbers, bool all = false) {
    blocks::removal what{.instance = 1, .all = all, .keys = {}};
    for (const std::uint64_t n : numbers) what.keys.push_back(reduce_key(key_of(n).view(), 0));
    return ask({what});
  }
  /// Which of these it says that it has.
  std::vector<bool> locate(const std::vector<std::uint64_t>& numbers, std::uint32_t instance = 1) {
    auto asked = std::make_shared<key_query>(key_query{.instance = instance, .group = 0, .keys = {}, .patience = 50ms});
    for (const std::uint64_t n : numbers) asked->keys.push_back(key_of(n));
    std::vector<bool> held;
    caf::scoped_actor self(system_);
    auto handle = self->request(tier_, 10s, locate_atom_v, key_query_ptr(asked));
    run();
    handle.receive([&](const key_answer_ptr& answer) { held = answer->held; }, [](const caf::error&) {});
    return held;
  }
  std::optional<outcome> ask(std::vector<blocks::removal> what) {
    std::optional<outcome> answer;
    caf::scoped_actor self(system_);
    auto handle = self->request(tier_, caf::infinite, forget_atom_v,
                                std::make_shared<const std::vector<blocks::removal>>(std::move(what)));
    run();
    for (int turn = 1; turn <= 400 && self->mailbox().empty(); ++turn) {
      pass_on();
      scheduler().clock().advance_time(100ms);
      if (turn % 10 == 0) caf::anon_send(tier_, tick_atom_v);
      run();
    }
    if (self->mailbox().empty()) return answer;
    handle.receive([&](const outcome& value) { answer = value; }, [](const caf::error&) {});
    return answer;
  }
  std::optional<outcome> clear(const std::string& name) {
    return ask({{.instance = 0, .all = true, .keys = {}, .id = name}});
  }
  [[nodiscard]] std::shared_ptr<const nvme_report> report() {
    std::shared_ptr<const nvme_report> found;
    caf::scoped_actor self(system_);
    auto handle = self->request(tier_, 10s, report_atom_v);
    run();
    handle.receive([&](const tier_report_ptr& value) { found = std::dynamic_pointer_cast<const nvme_report>(value); },
                   [](const caf::error&) {});
    BOOST_REQUIRE(found);
    return found;
  }
  [[nodiscard]] std::uint64_t blocks() { return report()->store.blocks; }
  [[nodiscard]] std::uint64_t pending() {
    std::uint64_t sum = 0;
    const auto found = report();  // g++ 12 does not yet keep alive the temporary that a range belongs to
    for (const nvme_path_report& each : found->paths) sum += each.pending_removals;
    return sum;
  }
  /// True when nothing is pending any more, which takes a retry.
  bool settles() {
    for (int turn = 0; turn < 200 && pending() > 0; ++turn) pass_on();
    return pending() == 0;
  }
  void open_all() {
    while (opening_ > 0) pass_on();
  }
  /// What the tier above hears of reads of earlier workers.
  std::optional<bool> drained() {
    std::optional<bool> said;
    caf::scoped_actor above(system_);
    above->send(tier_, above_atom_v, blocks::edge_number{0});
    run();
    if (!above->mailbox().empty()) above->receive([&](drained_atom, blocks::edge_number, bool sure) { said = sure; });
    return said;
  }
  void breaks(std::uint32_t path, const std::string& what) {
    caf::anon_send(tier_, broke_atom_v, path, what);
    run();
  }
  void unbind() {
    caf::anon_send(tier_, unbind_atom_v, std::uint32_t{1});
    run();
  }
  /// With the tier's beats, and what comes of them.
  void let_pass(std::chrono::seconds time) {
    for (auto passed = 0s; passed < time; passed += 1s) {
      scheduler().clock().advance_time(1s);
      caf::anon_send(tier_, tick_atom_v);
      run();
      pass_on();
    }
  }
  /// How often the tier was told of changes that were written down, and that were not.
  [[nodiscard]] std::uint64_t told_of_writes() const { return told_of_writes_; }
  [[nodiscard]] std::uint64_t told_of_failures() const { return told_of_failures_; }
  /// Writes what waits to be saved.
  void stop_devices() { devices_->stop(); }
  /// One event of the devices, if one comes.
  void pass_on() {
    if (auto next = events_.pop()) next();
    run();
  }

 private:
  void run() { scheduler().run(); }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  nvme::device_events events() {
    nvme::device_events all;
    all.opened = [this](nvme::opened_path opened) {
      auto kept = std::make_shared<nvme::opened_path>(std::move(opened));
      events_.push([this, kept] {
        --opening_;
        caf::anon_send(tier_, path_atom_v, kept);
      });
    };
    all.completed = [this](std::uint32_t path, std::vector<nvme::io_completion> done) {
      auto kept = std::make_shared<const io_done>(io_done{path, std::move(done)});
      events_.push([this, kept] { caf::anon_send(tier_, io_atom_v, kept); });
    };
    all.saved = [this](std::uint32_t path, std::uint64_t tag, const nvme::save_status& how) {
      auto kept = std::make_shared<const save_report>(save_report{path, tag, how});
      ++(how.written ? told_of_writes_ : told_of_failures_);
      events_.push([this, kept] { caf::anon_send(tier_, catalog_saved_atom_v, kept); });
    };
    return all;
  }
  void bind() {
    auto index = memory::shared_file::create("index", memory::index_segment_bytes);
    BOOST_REQUIRE(index);
    auto binding = std::make_shared<blocks::instance_binding>();
    binding->number = 1;
    binding->spec = small_spec();
    binding->index = std::move(*index);
    caf::anon_send(tier_, bind_atom_v, binding);
    run();
  }
  transfers_ptr transfers(std::uint64_t first, std::uint64_t count) {
    auto all = std::make_shared<std::vector<transfer>>();
    for (std::uint64_t n = first; n < first + count; ++n) {
      std::byte* memory = memory_.data() + (n % 256) * block_bytes;
      std::memset(memory, static_cast<int>(n), block_bytes);
      const full_key full = key_of(n);
      all->push_back({.instance = 1,
                      .group = 0,
                      .token = n,
                      .full = full,
                      .key = reduce_key(full.view(), 0),
                      .memory = {memory, block_bytes}});
    }
    return all;
  }

  deterministic_config config_;
  caf::actor_system system_;
  event_queue events_;
  memory::segment memory_ = std::move(*memory::segment::create("blocks", 256 * block_bytes));
  std::size_t opening_ = 0;
  std::atomic<std::uint64_t> told_of_writes_ = 0;
  std::atomic<std::uint64_t> told_of_failures_ = 0;
  std::shared_ptr<nvme::devices> devices_;
  nvme_tier_actor tier_;
};

std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t n = first; n < first + count; ++n) all.push_back(n);
  return all;
}

bool is(const std::optional<outcome>& answer, error_code code) {
  return answer.has_value() && answer->code == code;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_tier_actor_tests)

BOOST_AUTO_TEST_CASE(it_says_which_of_the_keys_it_has) {
  machine node;
  worker one(node);
  one.store(1, 2);
  BOOST_TEST((one.locate({1, 3, 2}) == std::vector{true, false, true}));
  BOOST_TEST((one.locate({1, 2}, 2) == std::vector{false, false}), "another instance's");
  BOOST_REQUIRE(one.remove({1}));
  BOOST_TEST((one.locate({1, 2}) == std::vector{false, true}));
}

BOOST_AUTO_TEST_CASE(what_was_removed_is_gone_for_the_next_worker) {
  machine on({"one", "two"});
  {
    worker first(on);
    first.store(0, 100);
    BOOST_TEST(is(first.remove(numbers(0, 30)), error_code::ok));
  }
  {
    worker second(on);
    BOOST_TEST(second.blocks() == 70U);
    BOOST_TEST(is(second.remove({}, true), error_code::ok));
  }
  BOOST_TEST(worker(on).blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(the_tier_hears_of_what_was_written_down_only_if_it_asked_or_it_failed) {
  machine on;
  {
    worker first(on);
    first.store(0, 100);
    BOOST_TEST(is(first.remove(numbers(0, 30)), error_code::ok));
    BOOST_TEST(first.told_of_writes() == 1U);
    BOOST_TEST(first.told_of_failures() == 0U);
    first.stop_devices();
    BOOST_TEST(first.told_of_writes() == 1U);
  }
  worker second(on);
  const no_writes full;
  (void)second.remove(numbers(30, 1));
  BOOST_TEST(second.told_of_failures() > 0U);
}

BOOST_AUTO_TEST_CASE(a_disk_that_takes_no_write_is_named_and_the_next_worker_forgets_all_the_same) {
  machine on;
  { worker(on).store(0, 100); }
  {
    worker first(on);
    const no_writes full;
    const auto answer = first.remove(numbers(0, 30));
    BOOST_REQUIRE(answer.has_value());
    BOOST_TEST((answer->code == error_code::removal_pending));
    BOOST_TEST(answer->message.find(on.directories[0] + " (") != std::string::npos, answer->message);
    BOOST_TEST(answer->value == 30U);
    BOOST_TEST(first.pending() == 30U);
    BOOST_TEST(first.report()->failed_removals == 1U);
    BOOST_TEST(first.blocks() == 70U);
  }
  worker second(on);
  BOOST_TEST(second.blocks() == 70U);
  BOOST_TEST(second.settles());
}

BOOST_AUTO_TEST_CASE(a_removal_that_failed_is_tried_again_by_the_same_worker) {
  machine on;
  { worker(on).store(0, 100); }
  {
    worker first(on);
    {
      const no_writes full;
      BOOST_TEST(is(first.remove(numbers(0, 30)), error_code::removal_pending));
    }
    BOOST_TEST(first.settles());
    BOOST_TEST(is(first.remove(numbers(30, 10)), error_code::ok));
  }
  // Another node: nothing is left of the keeper's memory.
  on.kept[0] = std::move(*memory::segment::create("kept", nvme::pending_removals::kept_bytes));
  BOOST_TEST(worker(on).blocks() == 60U);
}

BOOST_AUTO_TEST_CASE(a_removal_after_one_that_failed_is_not_done_before_both_are) {
  machine on;
  worker first(on);
  first.store(0, 100);
  const no_writes full;
  BOOST_TEST(is(first.remove(numbers(0, 10)), error_code::removal_pending));
  // The tier does not know the key any more; the path's metadata does.
  BOOST_TEST(is(first.remove(numbers(0, 10)), error_code::removal_pending));
}

BOOST_AUTO_TEST_CASE(a_removal_while_a_path_opens_waits_for_it) {
  machine on;
  { worker(on).store(0, 100); }
  const unique_fd held(::open((on.directories[0] + "/data").c_str(), O_RDWR | O_CLOEXEC));
  BOOST_REQUIRE(::flock(held.get(), LOCK_EX) == 0);
  worker second(on, false);
  BOOST_TEST(is(second.remove(numbers(0, 30)), error_code::removal_pending), "it waited, but not for ever");
  BOOST_REQUIRE(::flock(held.get(), LOCK_UN) == 0);
  second.open_all();
  BOOST_TEST(second.blocks() == 70U);
  BOOST_TEST(second.settles());
}

BOOST_AUTO_TEST_CASE(a_clear_while_a_path_opens_is_answered_when_it_is_open) {
  machine on;
  { worker(on).store(0, 100); }
  {
    worker second(on, false);  // its path opens while the request is under way
    BOOST_TEST(is(second.remove({}, true), error_code::ok));
    second.open_all();
    BOOST_TEST(second.blocks() == 0U);
    second.store(0, 5);
  }
  BOOST_TEST(worker(on).blocks() == 5U, "what came after it stays");
}

BOOST_AUTO_TEST_CASE(a_clear_while_a_path_opens_leaves_the_name_for_later_ones) {
  machine on;
  { worker(on).store(0, 100); }
  {
    worker second(on, false);
    BOOST_TEST(is(second.clear(small_spec().id), error_code::ok));
    second.open_all();
    BOOST_TEST(second.blocks() == 0U);
    second.store(0, 5);
  }
  worker third(on, true, false);
  BOOST_TEST(third.blocks() == 5U);
  BOOST_TEST(is(third.clear(small_spec().id), error_code::ok), "of an instance that nobody is attached to");
  BOOST_TEST(third.blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(a_clear_by_name_while_a_path_opens_outlives_its_worker) {
  machine on;
  { worker(on).store(0, 100); }
  const unique_fd held(::open((on.directories[0] + "/data").c_str(), O_RDWR | O_CLOEXEC));
  BOOST_REQUIRE(::flock(held.get(), LOCK_EX) == 0);
  {
    worker second(on, false, false);  // knows the name of nobody
    BOOST_TEST(is(second.clear(small_spec().id), error_code::removal_pending));
    BOOST_TEST(is(second.clear(small_spec().id), error_code::removal_pending), "again: it is no more done than before");
    BOOST_TEST(second.pending() == 1U);
  }
  BOOST_REQUIRE(::flock(held.get(), LOCK_UN) == 0);
  {
    worker third(on, true, false);
    BOOST_TEST(third.blocks() == 0U);
    BOOST_TEST(third.settles());
  }
  BOOST_TEST(worker(on).blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(a_clear_by_name_of_what_a_failed_path_may_hold_is_kept_for_it) {
  machine on({"one", "two"});
  { worker(on).store(0, 100); }
  on.take_data_away(0);
  {
    worker second(on, true, false);
    BOOST_TEST(is(second.clear("a name of nobody"), error_code::removal_pending), "who knows");
    BOOST_TEST(second.blocks() > 0U);
    BOOST_TEST(is(second.clear(small_spec().id), error_code::removal_pending));
    BOOST_TEST(second.blocks() == 0U);
  }
  on.bring_data_back(0);
  BOOST_TEST(worker(on).blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(a_path_with_an_exception_on_its_thread_leaves_the_service) {
  machine on({"one", "two"});
  worker first(on);
  first.store(0, 20);
  first.breaks(0, "no memory");
  first.breaks(0, "again");
  BOOST_TEST((first.report()->store.paths[0].state == nvme::path_state::failed));
  BOOST_TEST(first.report()->store.paths[0].why == "no memory");
  BOOST_TEST((first.report()->store.paths[1].state == nvme::path_state::serving));
  first.store(20, 20);
  BOOST_TEST(is(first.remove(numbers(0, 10)), error_code::ok), "its metadata is still written");
}

BOOST_AUTO_TEST_CASE(whether_reads_of_an_earlier_worker_have_ended_is_known_of_paths_whose_lock_is_ours) {
  machine on({"one", "two"});
  { worker(on).store(0, 10); }
  BOOST_TEST((worker(on).drained() == true));
  const std::string metadata = on.directories[1] + "/metadata";
  std::filesystem::rename(metadata, metadata + ".away");
  std::ofstream(metadata) << "no directory";
  BOOST_TEST((worker(on).drained() == true), "it failed, and is locked");
  on.take_data_away(0);
  BOOST_TEST((worker(on).drained() == false));
}

BOOST_AUTO_TEST_CASE(the_name_of_an_instance_goes_with_its_last_block) {
  machine on;
  {
    worker first(on);
    first.store(0, 5);
    first.unbind();
    BOOST_TEST(is(first.clear(small_spec().id), error_code::ok));
    first.let_pass(4s);
    BOOST_TEST(is(first.clear(small_spec().id), error_code::invalid_argument), "there is none any more");
  }
  BOOST_TEST(is(worker(on, true, false).clear(small_spec().id), error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_name_without_blocks_that_an_earlier_worker_left_goes) {
  machine on;
  { worker(on).store(0, 0); }
  {
    worker second(on, true, false);
    BOOST_TEST(is(second.clear(small_spec().id), error_code::ok));
    second.let_pass(4s);
  }
  BOOST_TEST(is(worker(on, true, false).clear(small_spec().id), error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(nobody_knows_what_a_path_holds_that_cannot_be_opened) {
  machine on({"one", "two"});
  { worker(on).store(0, 100); }
  on.take_data_away(0);
  std::uint64_t left = 0;
  {
    worker second(on);
    left = second.blocks();
    BOOST_TEST(left < 100U);
    const auto answer = second.remove(numbers(0, 100));
    BOOST_REQUIRE(answer.has_value());
    BOOST_TEST((answer->code == error_code::removal_pending));
    BOOST_TEST(answer->message.find("/one (") != std::string::npos, answer->message);
    BOOST_TEST(answer->message.find("/two (") == std::string::npos, answer->message);
  }
  on.bring_data_back(0);
  worker third(on);
  BOOST_TEST(third.blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(clear_all_forgets_instances_that_nobody_attached_to) {
  machine on;
  { worker(on).store(0, 100); }
  {
    worker second(on);
    BOOST_TEST(is(second.ask({{.instance = 0, .all = true, .keys = {}}}), error_code::ok));
    BOOST_TEST(second.blocks() == 0U);
  }
  BOOST_TEST(worker(on).blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(metadata_that_lost_its_log_is_set_aside_for_removals_were_in_it) {
  machine on;
  { worker(on).store(0, 100); }
  BOOST_TEST(is(worker(on).remove(numbers(0, 30)), error_code::ok));
  for (const auto& each : std::filesystem::directory_iterator(on.directories[0] + "/metadata")) {
    if (each.path().extension() == ".log") std::filesystem::resize_file(each.path(), 0);
  }
  {
    worker third(on);
    BOOST_TEST(third.blocks() == 0U);
    BOOST_TEST(std::filesystem::exists(on.directories[0] + "/metadata.damaged-1"));
    third.store(0, 10);
  }
  BOOST_TEST(worker(on).blocks() == 10U, "the metadata that began then is whole");
}

BOOST_AUTO_TEST_SUITE_END()
