// Handles of the C ABI: a call may run beside the end of what it is about, in another thread. It is an error then.
#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "client/c_api_support.hpp"
#include "client/call_gate.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/client/session_fixture.hpp"

namespace handle_test {

using namespace cenote;
using testing::keys_of;
using testing::part_bytes;

namespace {

constexpr std::size_t key_count = 8;

/// One of each handle, and a node that answers them.
struct handles {
  handles() {
    BOOST_REQUIRE_EQUAL(c_api::hand_out_session(&session, std::move(fixture.session)), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_prefetch_start(session, keys(), 0, &prefetch), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_group_join(session, "ranks", 0, 1, 1'000'000'000, 0, &ranks), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_device_open("sim:0", &device), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_stream_open(device, &stream), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_event_record(stream, &event), CENOTE_OK);
    BOOST_REQUIRE_EQUAL(cenote_use_device(session, device), CENOTE_OK);
  }
  handles(const handles&) = delete;
  handles& operator=(const handles&) = delete;
  ~handles() {
    cenote_prefetch_free(prefetch);
    cenote_group_free(ranks);
    cenote_free(session);
    cenote_event_free(event);
    cenote_stream_free(stream);
    cenote_device_free(device);
  }
  [[nodiscard]] cenote_keys keys() const { return {key_bytes.data(), key_count, 32}; }

  std::vector<std::byte> copied = std::vector<std::byte>(2 * part_bytes);
  testing::session_fixture fixture;
  std::vector<std::byte> key_bytes = keys_of(0, key_count);
  cenote_session* session = nullptr;
  cenote_prefetch* prefetch = nullptr;
  cenote_rank_group* ranks = nullptr;
  cenote_device* device = nullptr;
  cenote_stream* stream = nullptr;
  cenote_event* event = nullptr;
};

/// Memory of one thread's calls.
struct call_memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(key_count * part_bytes);
  std::array<cenote_held, key_count> pins{};
  std::array<cenote_reserved, key_count> reserved{};
  std::array<std::uint8_t, key_count> present{};
  std::array<cenote_length, 4> lengths{};
  cenote_match match{};
  cenote_stats stats{};
  std::uint64_t number = 0;
  std::uint32_t word = 0;
  std::size_t count = 0;
  std::uint64_t turn = 0;  ///< counted over all threads

  [[nodiscard]] cenote_buffers buffers() { return {nullptr, bytes.data(), part_bytes, part_bytes}; }
};

enum class freed_by : std::uint8_t { session, prefetch, ranks, device, stream, event };

struct call_case {
  freed_by subject;
  std::function<int(handles&, call_memory&)> call;
};

/// Copies by the stream, within memory that outlives the device.
template <class Copy>
int copy_by(handles& all, Copy&& copy) {
  const cenote_strided piece{all.copied.data(), part_bytes, 64, 1, 64};
  const std::uint64_t index = 0;
  void* const block = all.copied.data() + part_bytes;
  const cenote_copy_options options{sizeof(cenote_copy_options), 0, all.stream, 0};
  return copy(piece, index, block, options);
}

/// Reserves first, and gives back what the call leaves.
template <class Call>
int reserve_and(handles& all, call_memory& memory, Call&& call) {
  const int code = cenote_reserve(all.session, all.keys(), 0, CENOTE_WHOLE_BLOCK, memory.reserved.data());
  if (code != CENOTE_OK) return code;
  const int outcome = call();
  static_cast<void>(cenote_abandon(all.session, memory.reserved.data(), key_count));
  return outcome;
}

template <class Call>
int acquire_and(handles& all, call_memory& memory, Call&& call) {
  const int code = cenote_acquire(all.session, all.keys(), 0, memory.pins.data(), &memory.count);
  return code == CENOTE_OK ? call() : code;
}

/// A prefetch of one's own.
template <class Start>
int begin_chain(Start&& start) {
  cenote_prefetch* chain = nullptr;
  const int code = start(&chain);
  cenote_prefetch_free(chain);
  return code;
}

const std::map<std::string, call_case>& reading_calls() {
  static const std::map<std::string, call_case> calls{
      {"cenote_group_index",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_group_index(all.session, "default", &memory.word); }}},
      {"cenote_part_index",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_part_index(all.session, 0, "rank0", &memory.word); }}},
      {"cenote_match_prefix",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_match_prefix(all.session, all.keys(), 0, &memory.match);
        }}},
      {"cenote_locate",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_locate(all.session, all.keys(), 0, 1'000'000, &memory.match);
        }}},
      {"cenote_asks_tiers",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_asks_tiers(all.session, &memory.word); }}},
      {"cenote_wants_spans",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_wants_spans(all.session, &memory.word); }}},
      {"cenote_trace_load",
       {freed_by::session,
        [](handles& all, call_memory&) {
          const cenote_load_span load{.struct_size = sizeof(cenote_load_span),
                                      .reserved = 0,
                                      .traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                      .begin_ns = 1,
                                      .end_ns = 2,
                                      .blocks_asked = 3,
                                      .blocks_loaded = 3,
                                      .bytes = 4};
          return cenote_trace_load(all.session, &load);
        }}},
      {"cenote_match_window",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_match_window(all.session, all.keys(), 0, 2, &memory.match);
        }}},
      {"cenote_exists",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_exists(all.session, all.keys(), 0, memory.present.data());
        }}},
      {"cenote_acquire",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return acquire_and(all, memory,
                             [&] { return cenote_release_held(all.session, memory.pins.data(), memory.count); });
        }}},
      {"cenote_release",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return acquire_and(all, memory, [&] {
            std::array<std::uint32_t, key_count> slots{};
            for (std::size_t i = 0; i < memory.count; ++i) slots[i] = memory.pins[i].slot;
            return cenote_release(all.session, slots.data(), memory.count);
          });
        }}},
      {"cenote_release_held",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_release_held(all.session, memory.pins.data(), 0); }}},
      {"cenote_get_into",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_get_into(all.session, all.keys(), 0, CENOTE_WHOLE_BLOCK, memory.buffers(), &memory.count);
        }}},
      {"cenote_stats_of",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          memory.stats.struct_size = sizeof memory.stats;
          return cenote_stats_of(all.session, &memory.stats);
        }}},
  };
  return calls;
}

const std::map<std::string, call_case>& chain_calls() {
  static const std::map<std::string, call_case> calls{
      {"cenote_prefetch_start",
       {freed_by::session,
        [](handles& all, call_memory&) {
          return begin_chain(
              [&](cenote_prefetch** out) { return cenote_prefetch_start(all.session, all.keys(), 0, out); });
        }}},
      {"cenote_prefetch_start_with",
       {freed_by::session,
        [](handles& all, call_memory&) {
          return begin_chain([&](cenote_prefetch** out) {
            return cenote_prefetch_start_with(all.session, all.keys(), 0, nullptr, out);
          });
        }}},
      {"cenote_follow",
       {freed_by::session,
        [](handles& all, call_memory&) {
          return begin_chain([&](cenote_prefetch** out) {
            return cenote_follow(all.session, "request", 7, "node", 0, 1'000'000, out);
          });
        }}},
      {"cenote_publish",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_publish(all.session, "request", 7, all.keys(), 0, CENOTE_APPEND, 0, &memory.number);
        }}},
      {"cenote_prefetch_wait",
       {freed_by::prefetch,
        [](handles& all, call_memory& memory) {
          return cenote_prefetch_wait(all.prefetch, 1'000'000, &memory.word, &memory.number);
        }}},
      {"cenote_prefetch_length",
       {freed_by::prefetch,
        [](handles& all, call_memory& memory) { return cenote_prefetch_length(all.prefetch, &memory.number); }}},
      {"cenote_prefetch_stop",
       {freed_by::prefetch, [](handles& all, call_memory&) { return cenote_prefetch_stop(all.prefetch); }}},
      {"cenote_prefetch_cancel",
       {freed_by::prefetch, [](handles& all, call_memory&) { return cenote_prefetch_cancel(all.prefetch); }}},
      {"cenote_prefetch_keys",
       {freed_by::prefetch,
        [](handles& all, call_memory&) {
          cenote_keys known{};
          return cenote_prefetch_keys(all.prefetch, &known);
        }}},
      {"cenote_group_join",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          cenote_rank_group* joined = nullptr;
          const std::string name = "group " + std::to_string(memory.turn);
          const int code = cenote_group_join(all.session, name.c_str(), 0, 1, 1'000'000'000, 0, &joined);
          cenote_group_free(joined);
          return code;
        }}},
      {"cenote_agree",
       {freed_by::ranks,
        [](handles& all, call_memory& memory) { return cenote_agree(all.ranks, memory.turn, 1, &memory.number); }}},
      {"cenote_agree_start",
       {freed_by::ranks,
        [](handles& all, call_memory& memory) {
          const cenote_length question{memory.turn, 1};
          const int code = cenote_agree_start(all.ranks, &question, 1);
          if (code != CENOTE_OK) return code;
          return cenote_agree_poll(all.ranks, memory.lengths.data(), memory.lengths.size(), 1'000'000, &memory.count);
        }}},
      {"cenote_agree_poll",
       {freed_by::ranks,
        [](handles& all, call_memory& memory) {
          return cenote_agree_poll(all.ranks, memory.lengths.data(), memory.lengths.size(), 0, &memory.count);
        }}},
      {"cenote_group_leave",
       {freed_by::ranks, [](handles& all, call_memory&) { return cenote_group_leave(all.ranks); }}},
  };
  return calls;
}

const std::map<std::string, call_case>& writing_calls() {
  static const std::map<std::string, call_case> calls{
      {"cenote_put",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_put(all.session, all.keys(), 0, CENOTE_WHOLE_BLOCK, memory.buffers(), &memory.number);
        }}},
      {"cenote_put_async",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return cenote_put_async(all.session, all.keys(), 0, CENOTE_WHOLE_BLOCK, memory.buffers(), &memory.number);
        }}},
      {"cenote_flush",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_flush(all.session, &memory.number); }}},
      {"cenote_reserve",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return reserve_and(all, memory, [] { return CENOTE_OK; }); }}},
      {"cenote_commit",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return reserve_and(all, memory, [&] {
            return cenote_commit(all.session, memory.reserved.data(), key_count, &memory.number);
          });
        }}},
      {"cenote_abandon",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_abandon(all.session, memory.reserved.data(), 0); }}},
      {"cenote_keep",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_keep(all.session, all.keys(), 0, 1, &memory.number); }}},
      {"cenote_remove",
       {freed_by::session,
        [](handles& all, call_memory& memory) { return cenote_remove(all.session, all.keys(), 0, &memory.number); }}},
      {"cenote_unconfirmed",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          std::uint64_t nodes = 0;
          return cenote_unconfirmed(all.session, &memory.number, &nodes);
        }}},
      {"cenote_clear", {freed_by::session, [](handles& all, call_memory&) { return cenote_clear(all.session); }}},
      {"cenote_barrier", {freed_by::session, [](handles& all, call_memory&) { return cenote_barrier(all.session); }}},
      {"cenote_close",
       {freed_by::session,
        [](handles& all, call_memory&) {
          return cenote_close(all.session) == CENOTE_CLOSED ? CENOTE_CLOSED : CENOTE_OK;
        }}},
  };
  return calls;
}

const std::map<std::string, call_case>& device_calls() {
  static const std::map<std::string, call_case> calls{
      {"cenote_stream_open",
       {freed_by::device,
        [](handles& all, call_memory&) {
          cenote_stream* opened = nullptr;
          const int code = cenote_stream_open(all.device, &opened);
          cenote_stream_free(opened);
          return code;
        }}},
      {"cenote_stream_wrap",
       {freed_by::device,
        [](handles& all, call_memory&) {
          cenote_stream* wrapped = nullptr;
          const int code = cenote_stream_wrap(all.device, nullptr, &wrapped);
          cenote_stream_free(wrapped);
          return code;
        }}},
      {"cenote_stream_native",
       {freed_by::stream,
        [](handles& all, call_memory&) {
          static_cast<void>(cenote_stream_native(all.stream));
          return cenote_stream_wait(all.stream, all.event);
        }}},
      {"cenote_event_record",
       {freed_by::stream,
        [](handles& all, call_memory&) {
          cenote_event* recorded = nullptr;
          const int code = cenote_event_record(all.stream, &recorded);
          cenote_event_free(recorded);
          return code;
        }}},
      {"cenote_event_done",
       {freed_by::event, [](handles& all, call_memory& memory) { return cenote_event_done(all.event, &memory.word); }}},
      {"cenote_event_wait",
       {freed_by::event, [](handles& all, call_memory&) { return cenote_event_wait(all.event, 1'000'000); }}},
      {"cenote_stream_wait",
       {freed_by::event, [](handles& all, call_memory&) { return cenote_stream_wait(all.stream, all.event); }}},
      {"cenote_use_device",
       {freed_by::device, [](handles& all, call_memory&) { return cenote_use_device(all.session, all.device); }}},
      {"cenote_session_device",
       {freed_by::session,
        [](handles& all, call_memory&) {
          cenote_device* home = nullptr;
          return cenote_session_device(all.session, &home);
        }}},
      {"cenote_release_after",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return acquire_and(all, memory, [&] {
            std::array<std::uint32_t, key_count> slots{};
            for (std::size_t i = 0; i < memory.count; ++i) slots[i] = memory.pins[i].slot;
            return cenote_release_after(all.session, slots.data(), memory.count, all.stream);
          });
        }}},
      {"cenote_commit_after",
       {freed_by::session,
        [](handles& all, call_memory& memory) {
          return reserve_and(all, memory, [&] {
            const int code = cenote_commit_after(all.session, memory.reserved.data(), key_count, all.stream);
            static_cast<void>(cenote_flush(all.session, nullptr));
            return code;
          });
        }}},
      {"cenote_gather",
       {freed_by::stream,
        [](handles& all, call_memory&) {
          return copy_by(all, [](const auto& piece, const auto& index, void* block, const auto& options) {
            return cenote_gather(&piece, 1, &index, &block, 1, &options);
          });
        }}},
      {"cenote_scatter",
       {freed_by::stream,
        [](handles& all, call_memory&) {
          return copy_by(all, [](const auto& piece, const auto& index, const void* block, const auto& options) {
            return cenote_scatter(&piece, 1, &index, &block, 1, &options);
          });
        }}},
      {"cenote_copy",
       {freed_by::stream,
        [](handles& all, call_memory&) {
          return copy_by(all, [](const auto& piece, const auto&, void* block, const auto& options) {
            const void* const source = piece.base;
            const std::uint64_t size = 64;
            return cenote_copy(&block, &source, &size, 1, &options);
          });
        }}},
  };
  return calls;
}

std::map<std::string, call_case> all_calls() {
  std::map<std::string, call_case> calls;
  for (const auto* some : {&reading_calls(), &chain_calls(), &writing_calls(), &device_calls()})
    calls.insert(some->begin(), some->end());
  return calls;
}

/// Frees what the calls are about; of what hangs on a session every second time the session.
void free_subject(handles& all, freed_by subject, bool with_session) {
  const bool is_of_session = subject == freed_by::prefetch || subject == freed_by::ranks;
  if (subject == freed_by::session || (is_of_session && with_session)) return cenote_free(all.session);
  switch (subject) {
    case freed_by::prefetch: return cenote_prefetch_free(all.prefetch);
    case freed_by::ranks: return cenote_group_free(all.ranks);
    case freed_by::device: return cenote_device_free(all.device);
    case freed_by::stream: return cenote_stream_free(all.stream);
    default: return cenote_event_free(all.event);
  }
}

/// Threads that call until the handle is gone.
class callers {
 public:
  callers(handles& all, const call_case& work, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, &all, &work] {
        call_memory memory;
        do memory.turn = calls_.fetch_add(1) + 1;
        while (work.call(all, memory) != CENOTE_CLOSED);
      });
    }
  }
  callers(const callers&) = delete;
  callers& operator=(const callers&) = delete;
  ~callers() {
    for (std::thread& each : threads_) each.join();
  }
  void await(std::uint64_t calls) const {
    while (calls_.load() < calls) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint64_t> calls_{0};
  std::vector<std::thread> threads_;
};

/// The functions of cenote.h.
std::set<std::string> declared_functions() {
  std::ostringstream text;
  text << std::ifstream(cenote::testing::source_folder() / "client" / "cenote.h").rdbuf();
  const std::string header = text.str();
  static const std::regex declaration(R"(CENOTE_API [^;(]*?(cenote_\w+)\()");
  std::set<std::string> found;
  for (std::sregex_iterator one(header.begin(), header.end(), declaration), end; one != end; ++one)
    found.insert((*one)[1]);
  return found;
}

/// Under the address sanitizer of g++ 12 a thread may hold a lock of its allocator at the fork: a child that allocates
/// waits for ever.
#ifdef __SANITIZE_ADDRESS__
constexpr bool may_allocate_after_fork = false;
#else
constexpr bool may_allocate_after_fork = true;
#endif

/// Ends of handles are beside every call; the others take none.
const std::set<std::string> ends{"cenote_free",        "cenote_prefetch_free", "cenote_group_free",
                                 "cenote_device_free", "cenote_stream_free",   "cenote_event_free"};
const std::set<std::string> without_handle{"cenote_error_name", "cenote_last_error", "cenote_abi_version",
                                           "cenote_attach", "cenote_device_open"};

}  // namespace

BOOST_AUTO_TEST_SUITE(handle)

BOOST_AUTO_TEST_CASE(every_function_of_the_c_abi_is_tried_beside_the_end_of_its_handle) {
  std::set<std::string> tried;
  for (const auto& [name, each] : all_calls()) tried.insert(name);
  tried.insert(ends.begin(), ends.end());
  tried.insert(without_handle.begin(), without_handle.end());
  BOOST_TEST(tried == declared_functions(), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_call_beside_the_end_of_its_handle_is_an_error) {
  std::minstd_rand chance(5);
  for (const auto& [name, each] : all_calls()) {
    BOOST_TEST_MESSAGE(name);
    BOOST_TEST_CONTEXT(name) {
      for (const bool with_session : {true, false}) {
        handles all;
        // A prefetch is used by one thread at a time.
        const callers calling(all, each, each.subject == freed_by::prefetch ? 1 : 3);
        calling.await(1 + chance() % 40);
        if (with_session && each.subject == freed_by::session && chance() % 2 == 0) {
          static_cast<void>(cenote_close(all.session));
        }
        std::thread rival([&, with_session] { free_subject(all, each.subject, with_session); });
        free_subject(all, each.subject, with_session);
        rival.join();
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_handle_that_was_freed_is_another_one_for_good) {
  handles all;
  std::set<cenote_event*> known;
  for (int turn = 0; turn < 2000; ++turn) {  // more often than there are places in a chunk
    cenote_event* made = nullptr;
    BOOST_REQUIRE_EQUAL(cenote_event_record(all.stream, &made), CENOTE_OK);
    BOOST_TEST(known.insert(made).second);
    cenote_event_free(made);
    std::uint32_t done = 0;
    BOOST_TEST(cenote_event_done(made, &done) == CENOTE_CLOSED);
    cenote_event_free(made);  // does nothing
  }
}

BOOST_AUTO_TEST_CASE(many_handles_live_at_a_time) {
  handles all;
  std::vector<cenote_event*> events(5000);
  for (cenote_event*& each : events) BOOST_REQUIRE_EQUAL(cenote_event_record(all.stream, &each), CENOTE_OK);
  BOOST_TEST(std::set<cenote_event*>(events.begin(), events.end()).size() == events.size());
  for (cenote_event* const each : events) BOOST_TEST(cenote_event_wait(each, 60'000'000'000) == CENOTE_OK);
  for (cenote_event* const each : events) cenote_event_free(each);
}

BOOST_AUTO_TEST_CASE(what_is_no_handle_of_its_kind_is_refused) {
  handles all;
  cenote_match match{};
  auto* const other = reinterpret_cast<cenote_session*>(all.event);
  auto* const garbage = reinterpret_cast<cenote_session*>(~std::uintptr_t{0} - 14);  // the kind of a session
  BOOST_TEST(cenote_match_prefix(nullptr, all.keys(), 0, &match) == CENOTE_INVALID_ARGUMENT);
  BOOST_TEST(cenote_match_prefix(other, all.keys(), 0, &match) == CENOTE_INVALID_ARGUMENT);
  BOOST_TEST(cenote_last_error() == std::string("this is the handle of no session"));
  BOOST_TEST(cenote_match_prefix(garbage, all.keys(), 0, &match) == CENOTE_CLOSED);
  cenote_free(garbage);
  cenote_free(other);
  BOOST_TEST(cenote_event_wait(all.event, 60'000'000'000) == CENOTE_OK);
}

BOOST_AUTO_TEST_CASE(a_prefetch_and_a_group_outlive_their_session_as_errors) {
  handles all;
  cenote_free(all.session);
  std::uint64_t length = 0;
  BOOST_TEST(cenote_prefetch_length(all.prefetch, &length) == CENOTE_CLOSED);
  BOOST_TEST(cenote_last_error() == std::string("the session was freed"));
  BOOST_TEST(cenote_agree(all.ranks, 1, 1, &length) == CENOTE_CLOSED);
}

/// In the child: no thread of the parent's is there, whatever it was doing.
BOOST_AUTO_TEST_CASE(a_child_forked_beside_calls_gets_errors_from_each_and_ends,
                     *boost::unit_test::enable_if<may_allocate_after_fork>()) {
  for (const auto& [name, each] : all_calls()) {
    handles all;
    pid_t child = -1;
    {
      const callers calling(all, each, each.subject == freed_by::prefetch ? 1 : 2);
      calling.await(3);
      child = ::fork();
      if (child == 0) {
        call_memory memory;
        const int code = each.call(all, memory);
        free_subject(all, each.subject, false);
        cenote_free(all.session);
        ::_exit(code == CENOTE_FORKED || name == "cenote_close" ? 0 : 1);
      }
      free_subject(all, each.subject, false);
      cenote_free(all.session);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(status == 0, name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace handle_test
