// The C ABI of the indexer: turns C structs into the index's types, and errors into a code and a sentence.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/c_abi.hpp"
#include "services/indexer/library/cenote_indexer.h"
#include "services/indexer/library/local_index.hpp"

namespace indexer = cenote::indexer;
using cenote::error_code;
using cenote::fail;
using cenote::result;
using cenote::c_api::call;
using cenote::c_api::clear_results;
using cenote::c_api::failed;
using cenote::c_api::free_handle;
using cenote::c_api::guarded;
using cenote::c_api::hand_out;
using cenote::c_api::last_message;
using cenote::c_api::null_argument;
using cenote::c_api::success;
using cenote::c_api::versioned;

namespace {

/// The index as its handle and its readers share it.
struct open_index {
  explicit open_index(indexer::local_index output) noexcept : index(std::move(output)) {}
  indexer::local_index index;
  alignas(64) std::atomic<bool> is_taken{false};   ///< a thread feeds it
  alignas(64) std::atomic<bool> is_closed{false};  ///< for readers, which write nothing that they share
};

/// A reader's memory for questions and answers.
struct question_memory {
  std::vector<std::string_view> pods;
  indexer::extra_key_table extra_keys;
  std::vector<cenote_indexer_score_row> rows;
  std::vector<cenote_indexer_text> degraded;
  std::vector<cenote_indexer_holder> holders;
  std::vector<std::uint64_t> ends;
  std::vector<cenote_indexer_pod> members;
  std::string names;
};

}  // namespace

template <>
struct cenote::c_api::handle_traits<cenote_indexer> {
  struct object : client::handle_object {
    explicit object(std::shared_ptr<open_index> output) noexcept : impl(std::move(output)) {}
    std::shared_ptr<open_index> impl;
  };
  static constexpr auto kind = client::handle_kind::indexer;
};

template <>
struct cenote::c_api::handle_traits<cenote_indexer_reader> {
  struct object : client::handle_object {
    object(std::shared_ptr<open_index> index, indexer::scorer answers) noexcept
        : impl(std::move(index)), questions(std::move(answers)) {}
    std::shared_ptr<open_index> impl;  ///< outlives the scorer
    indexer::scorer questions;
    question_memory memory;
    std::atomic<bool> is_taken{false};  ///< a thread asks it
  };
  static constexpr auto kind = client::handle_kind::indexer_reader;
};

namespace {

using indexer_object = cenote::c_api::handle_traits<cenote_indexer>::object;
using reader_object = cenote::c_api::handle_traits<cenote_indexer_reader>::object;

// The two halves of the ABI must not drift apart.
static_assert(CENOTE_INDEXER_INVALID_ARGUMENT == static_cast<int>(error_code::invalid_argument));
static_assert(CENOTE_INDEXER_SPEC_MISMATCH == static_cast<int>(error_code::spec_mismatch));
static_assert(CENOTE_INDEXER_LIMIT_EXCEEDED == static_cast<int>(error_code::limit_exceeded));
static_assert(CENOTE_INDEXER_FORKED == static_cast<int>(error_code::forked));
static_assert(CENOTE_INDEXER_CLOSED == static_cast<int>(error_code::closed));
static_assert(CENOTE_INDEXER_SYSTEM == static_cast<int>(error_code::system));
static_assert(CENOTE_INDEXER_INTERNAL == static_cast<int>(error_code::internal));
static_assert(CENOTE_INDEXER_FNV64_CBOR == static_cast<int>(indexer::key_chain::fnv64_cbor));
static_assert(CENOTE_INDEXER_CENOTE == static_cast<int>(indexer::event_engine::cenote));
static_assert(CENOTE_INDEXER_UNREADABLE == static_cast<int>(indexer::batch_fate::unreadable));
static_assert(CENOTE_INDEXER_LATE == static_cast<int>(indexer::batch_fate::late));
static_assert(CENOTE_INDEXER_RENEWAL == static_cast<int>(indexer::clear_reason::renewal) + 1);
static_assert(CENOTE_INDEXER_SILENT == static_cast<int>(indexer::publisher_state::silent));
static_assert(CENOTE_INDEXER_MEDIA == indexer::most_media);

/// A place that one thread has at a time: a second one does not get it.
class thread_turn {
 public:
  explicit thread_turn(std::atomic<bool>& place) noexcept
      : place_(place), is_mine_(!place.exchange(true, std::memory_order_acquire)) {}
  thread_turn(const thread_turn&) = delete;
  thread_turn& operator=(const thread_turn&) = delete;
  ~thread_turn() {
    if (is_mine_) place_.store(false, std::memory_order_release);
  }
  explicit operator bool() const noexcept { return is_mine_; }

 private:
  std::atomic<bool>& place_;
  bool is_mine_;
};

int busy(const char* subject) {
  return failed({error_code::limit_exceeded, std::string("another thread uses this ") + subject + ": one at a time"});
}

indexer::feed_time present_time() noexcept {
  return std::chrono::steady_clock::now();
}

std::string_view view_of(const cenote_indexer_text& text) noexcept {
  return text.data == nullptr ? std::string_view() : std::string_view(text.data, text.bytes);
}

cenote_indexer_text text_of(std::string_view text) noexcept {
  return {text.data(), text.size()};
}

/// A null pointer with a size.
bool is_hollow(const void* data, std::size_t size) noexcept {
  return data == nullptr && size != 0;
}

std::span<const std::byte> bytes_of(const void* data, std::size_t size) noexcept {
  return {static_cast<const std::byte*>(data), size};
}

/// Fills as much of the caller's struct as the caller knows.
template <class T>
void write_versioned(T& out, T value) noexcept {
  value.struct_size = out.struct_size;
  std::memcpy(&out, &value, std::min<std::size_t>(out.struct_size, sizeof(T)));
}

result<indexer::event_engine> engine_of(std::uint32_t number) {
  if (number <= CENOTE_INDEXER_CENOTE) return static_cast<indexer::event_engine>(number);
  return fail(error_code::invalid_argument, "engine " + std::to_string(number) + " is not known");
}

indexer::replay_source replays_of(std::uint32_t number) noexcept {
  switch (number) {
    case CENOTE_INDEXER_NO_REPLAYS: return indexer::replay_source::none;
    case CENOTE_INDEXER_SNAPSHOTS_TOO: return indexer::replay_source::snapshots;
    default: return indexer::replay_source::replays;
  }
}

result<indexer::local_index_options> options_of(const cenote_indexer_options* raw) {
  indexer::local_index_options out;
  if (raw == nullptr) return out;
  const auto in = versioned(*raw, "cenote_indexer_options");
  if (!in) return std::unexpected(in.error());
  if (in->key > CENOTE_INDEXER_FNV64_CBOR || in->replays > CENOTE_INDEXER_SNAPSHOTS_TOO) {
    return fail(error_code::invalid_argument, "`key` or `replays` has a number that is not known");
  }
  constexpr std::uint32_t most_block_tokens = 65'536;
  if (in->block_tokens > most_block_tokens) {
    return fail(error_code::invalid_argument, "`block_tokens` is " + std::to_string(in->block_tokens) +
                                                  "; right is 0 to " + std::to_string(most_block_tokens));
  }
  const auto engine = engine_of(in->engine);
  if (!engine) return std::unexpected(engine.error());
  if (is_hollow(in->weights, in->weight_count) || in->weight_count > indexer::most_media) {
    return fail(error_code::invalid_argument,
                "`weights` is a null pointer, or has more than " + std::to_string(indexer::most_media) + " entries");
  }
  out.key = static_cast<indexer::key_chain>(in->key);
  out.engine = *engine;
  out.block_tokens = in->block_tokens;
  out.replays = replays_of(in->replays);
  out.seed = view_of(in->seed);
  if (in->memory != 0) out.memory = in->memory;
  for (const cenote_indexer_weight& each : std::span(in->weights, in->weight_count)) {
    out.weights[std::string(view_of(each.medium))] = each.weight;
  }
  return out;
}

cenote_indexer_outcome outcome_of(const indexer::feed_outcome& output) noexcept {
  cenote_indexer_outcome out{};
  out.fate = static_cast<std::uint32_t>(output.fate);
  if (output.cleared) out.cleared = static_cast<std::uint32_t>(*output.cleared) + 1;
  out.state = static_cast<std::uint32_t>(output.state);
  out.applied = output.applied;
  out.missing_first = output.missing_first;
  out.missing = output.missing;
  if (output.ask) {
    out.ask = output.ask->number;
    out.ask_start = output.ask->start;
    out.ask_snapshot = output.ask->is_snapshot ? 1 : 0;
  }
  return out;
}

/// body(index), on behalf of the one thread that feeds.
template <class Body>
int change(cenote_indexer* handle, Body&& body) noexcept {
  return call(handle, [&](indexer_object& target) {
    const thread_turn turn(target.impl->is_taken);
    return turn ? body(target.impl->index) : busy("indexer");
  });
}

/// The same with an outcome, which the caller need not want.
template <class Body>
int feed_with(cenote_indexer* handle, cenote_indexer_outcome* out, Body&& body) noexcept {
  return change(handle, [&](indexer::local_index& index) {
    if (out != nullptr) {
      if (const auto checked = versioned(*out, "cenote_indexer_outcome"); !checked) return failed(checked.error());
    }
    const result<indexer::feed_outcome> output = body(index);
    if (!output) return failed(output.error());
    if (out != nullptr) write_versioned(*out, outcome_of(*output));
    return success;
  });
}

/// body(reader), unless its index was freed. The memory of the index stays as long as its readers.
template <class Body>
int with_reader(cenote_indexer_reader* handle, Body&& body) noexcept {
  return call(handle, [&](reader_object& target) {
    if (target.impl->is_closed.load(std::memory_order_acquire)) {
      return failed({error_code::closed, "the indexer of this reader was freed"});
    }
    return body(target);
  });
}

/// body(reader), whose answer goes to *out.
template <class Out, class Body>
int ask(cenote_indexer_reader* handle, Out* out, const char* type, Body&& body) noexcept {
  return with_reader(handle, [&](reader_object& target) {
    if (out == nullptr) return null_argument("out");
    if (const auto checked = versioned(*out, type); !checked) return failed(checked.error());
    const thread_turn turn(target.is_taken);
    if (!turn) return busy("reader");
    Out output{};
    if (const int status = body(target, output); status != success) return status;
    write_versioned(*out, output);
    return success;
  });
}

/// The question in the index's form; its lists lie in `memory`.
result<indexer::score_question> question_of(const cenote_indexer_question* raw, question_memory& memory) {
  using limits = indexer::question_limits;
  if (raw == nullptr) return fail(error_code::invalid_argument, "question is a null pointer");
  const auto in = versioned(*raw, "cenote_indexer_question");
  if (!in) return std::unexpected(in.error());
  if (is_hollow(in->tokens, in->token_count) || is_hollow(in->keys, in->key_count) ||
      is_hollow(in->pods, in->pod_count)) {
    return fail(error_code::invalid_argument, "`tokens`, `keys` or `pods` is a null pointer");
  }
  if (in->token_count > limits::tokens || in->key_count > limits::keys || in->pod_count > limits::pods) {
    return fail(error_code::invalid_argument, "a question has at most " + std::to_string(limits::tokens) + " tokens, " +
                                                  std::to_string(limits::keys) + " keys and " +
                                                  std::to_string(limits::pods) + " pods");
  }
  memory.pods.clear();
  for (const cenote_indexer_text& each : std::span(in->pods, in->pod_count)) memory.pods.push_back(view_of(each));
  memory.extra_keys.clear();
  const std::string_view salt = view_of(in->cache_salt);
  if (!salt.empty()) append_text_list(memory.extra_keys, salt);
  return indexer::score_question{.model = view_of(in->model),
                                 .tokens = {in->tokens, in->token_count},
                                 .block_keys = {in->keys, in->key_count},
                                 .pods = memory.pods,
                                 .lora_name = view_of(in->lora_name),
                                 .extra_keys = memory.extra_keys.view()};
}

cenote_indexer_score_row row_of(const indexer::pod_score& score) noexcept {
  cenote_indexer_score_row row{};
  row.pod = text_of(score.pod);
  row.score = score.score;
  row.blocks = score.blocks;
  row.tokens = score.tokens;
  row.dp_rank = score.dp_rank;
  std::ranges::copy(score.by_medium, row.by_medium);
  return row;
}

/// Gives the texts of a row their places: they lie one behind the other in `names`, and have their sizes.
template <class... Text>
void place_texts(const std::string& names, std::size_t& offset, Text&... texts) noexcept {
  ((texts.data = names.data() + offset, offset += texts.bytes), ...);
}

cenote_indexer_pod pod_of(const indexer::local_pod& pod) noexcept {
  cenote_indexer_pod row{};
  row.pod.bytes = pod.pod.size();
  row.model.bytes = pod.model.size();
  row.topic.bytes = pod.topic.size();
  row.dp_rank = pod.dp_rank;
  row.state = static_cast<std::uint32_t>(pod.state);
  row.next_seq = pod.last_seq ? *pod.last_seq + 1 : 0;
  std::ranges::copy(pod.blocks, row.blocks);
  row.applied = pod.counters.applied;
  row.gaps = pod.counters.gaps;
  row.replayed = pod.counters.replayed;
  row.restarts = pod.counters.restarts;
  row.lost_batches = pod.counters.lost_batches;
  return row;
}

cenote_indexer_figures figures_of(const indexer::local_figures& output) noexcept {
  cenote_indexer_figures out{};
  const auto& refused = output.events.refused;
  const auto& faults = output.events.faults;
  out.publishers = static_cast<std::uint32_t>(output.publishers);
  out.memory = output.memory;
  out.memory_in_use = output.index.bytes;
  out.batches = output.events.batches;
  out.bad_batches = output.bad_batches;
  out.stored = output.events.stored;
  out.removed = output.events.removed;
  out.clears = output.events.clears;
  out.refused = std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
  out.bad_events = std::accumulate(faults.begin(), faults.end(), std::uint64_t{0}) -
                   faults[static_cast<std::size_t>(indexer::event_fault::unknown_tag)];
  out.evicted = output.index.evicted;
  out.evicted_held = output.index.evicted_held;
  return out;
}

}  // namespace

extern "C" {

const char* cenote_indexer_last_error(void) {
  return last_message().c_str();
}

uint32_t cenote_indexer_abi_version(void) {
  return (CENOTE_INDEXER_ABI_MAJOR << 16) | CENOTE_INDEXER_ABI_MINOR;
}

int cenote_indexer_open(const cenote_indexer_options* options, cenote_indexer** out) {
  return guarded([&] {
    if (out == nullptr) return null_argument("out");
    *out = nullptr;
    const auto chosen = options_of(options);
    if (!chosen) return failed(chosen.error());
    auto output = indexer::local_index::make(*chosen);
    if (!output) return failed(output.error());
    return hand_out(out, std::make_unique<indexer_object>(std::make_shared<open_index>(std::move(*output))));
  });
}

void cenote_indexer_free(cenote_indexer* indexer) {
  free_handle(indexer, [](indexer_object& target) { target.impl->is_closed.store(true, std::memory_order_release); });
}

int cenote_indexer_feed(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t seq, const void* payload,
                        size_t bytes, cenote_indexer_outcome* out) {
  if (is_hollow(payload, bytes)) return null_argument("payload");
  return feed_with(indexer, out, [&](indexer::local_index& index) {
    return index.feed(view_of(topic), seq, bytes_of(payload, bytes), present_time());
  });
}

int cenote_indexer_replay(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask, uint64_t seq,
                          const void* payload, size_t bytes, cenote_indexer_outcome* out) {
  if (is_hollow(payload, bytes)) return null_argument("payload");
  return feed_with(indexer, out, [&](indexer::local_index& index) {
    return index.replay(view_of(topic), ask, seq, bytes_of(payload, bytes), present_time());
  });
}

int cenote_indexer_replay_end(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask, uint64_t next,
                              cenote_indexer_outcome* out) {
  return feed_with(indexer, out, [&](indexer::local_index& index) {
    return index.end_replay(view_of(topic), ask, next, present_time());
  });
}

int cenote_indexer_replay_failed(cenote_indexer* indexer, cenote_indexer_text topic, uint64_t ask,
                                 cenote_indexer_outcome* out) {
  return feed_with(indexer, out,
                   [&](indexer::local_index& index) { return index.fail_replay(view_of(topic), ask, present_time()); });
}

int cenote_indexer_next_ask(cenote_indexer* indexer, cenote_indexer_ask* out) {
  return change(indexer, [&](indexer::local_index& index) {
    if (out == nullptr) return null_argument("out");
    if (const auto checked = versioned(*out, "cenote_indexer_ask"); !checked) return failed(checked.error());
    cenote_indexer_ask output{};
    if (const auto next = index.next_ask(present_time())) {
      output.snapshot = next->ask.is_snapshot ? 1 : 0;
      output.number = next->ask.number;
      output.start = next->ask.start;
      output.topic = text_of(next->topic);
    }
    write_versioned(*out, output);
    return success;
  });
}

int cenote_indexer_topic_open(cenote_indexer* indexer, cenote_indexer_text topic,
                              const cenote_indexer_topic* settings) {
  return change(indexer, [&](indexer::local_index& index) {
    if (settings == nullptr) return null_argument("settings");
    const auto in = versioned(*settings, "cenote_indexer_topic");
    if (!in) return failed(in.error());
    const auto engine = engine_of(in->engine);
    if (!engine) return failed(engine.error());
    indexer::topic_settings output{.pod = std::string(view_of(in->pod)),
                                   .model = std::string(view_of(in->model)),
                                   .node = std::string(view_of(in->node))};
    if (*engine != indexer::event_engine::automatic) output.engine = *engine;
    const auto opened = index.open(view_of(topic), output, present_time());
    return opened ? success : failed(opened.error());
  });
}

int cenote_indexer_topic_close(cenote_indexer* indexer, cenote_indexer_text topic, uint32_t* was_open) {
  return change(indexer, [&](indexer::local_index& index) {
    const bool is_closed = index.close(view_of(topic), present_time());
    if (was_open != nullptr) *was_open = is_closed ? 1 : 0;
    return success;
  });
}

int cenote_indexer_clear(cenote_indexer* indexer, cenote_indexer_text pod, cenote_indexer_text medium,
                         uint32_t* was_there) {
  return change(indexer, [&](indexer::local_index& index) {
    const auto cleared = index.clear(view_of(pod), view_of(medium), present_time());
    if (!cleared) return failed(cleared.error());
    if (was_there != nullptr) *was_there = *cleared ? 1 : 0;
    return success;
  });
}

int cenote_indexer_advance(cenote_indexer* indexer) {
  return change(indexer, [&](indexer::local_index& index) {
    index.advance(present_time());
    return success;
  });
}

int cenote_indexer_figures_of(cenote_indexer* indexer, cenote_indexer_figures* out) {
  return change(indexer, [&](indexer::local_index& index) {
    if (out == nullptr) return null_argument("out");
    if (const auto checked = versioned(*out, "cenote_indexer_figures"); !checked) return failed(checked.error());
    write_versioned(*out, figures_of(index.figures()));
    return success;
  });
}

int cenote_indexer_reader_open(cenote_indexer* indexer, cenote_indexer_reader** out) {
  clear_results(out);
  return call(indexer, [&](indexer_object& target) {
    if (out == nullptr) return null_argument("out");
    auto questions = target.impl->index.open_scorer();
    if (!questions) return failed(questions.error());
    return hand_out(out, std::make_unique<reader_object>(target.impl, std::move(*questions)));
  });
}

void cenote_indexer_reader_free(cenote_indexer_reader* reader) {
  free_handle(reader);
}

int cenote_indexer_score(cenote_indexer_reader* reader, const cenote_indexer_question* question,
                         cenote_indexer_answer* out) {
  return ask(reader, out, "cenote_indexer_answer", [&](reader_object& target, cenote_indexer_answer& output) {
    question_memory& memory = target.memory;
    const auto asked = question_of(question, memory);
    if (!asked) return failed(asked.error());
    const indexer::score_answer answer = target.questions.score(*asked);
    memory.rows.clear();
    for (const indexer::pod_score& each : answer.scores) memory.rows.push_back(row_of(each));
    memory.degraded.clear();
    for (const std::string_view each : answer.degraded) memory.degraded.push_back(text_of(each));
    output.block_tokens = answer.block_tokens;
    output.blocks = answer.blocks;
    output.rows = memory.rows.data();
    output.row_count = memory.rows.size();
    output.degraded = memory.degraded.data();
    output.degraded_count = memory.degraded.size();
    return success;
  });
}

int cenote_indexer_keys_of(cenote_indexer_reader* reader, const cenote_indexer_question* question,
                           cenote_indexer_keys* out) {
  return ask(reader, out, "cenote_indexer_keys", [&](reader_object& target, cenote_indexer_keys& output) {
    const auto asked = question_of(question, target.memory);
    if (!asked) return failed(asked.error());
    const auto keys = target.questions.keys_of(*asked);
    output.keys = keys.data();
    output.key_count = keys.size();
    return success;
  });
}

int cenote_indexer_lookup(cenote_indexer_reader* reader, const uint64_t* keys, size_t key_count,
                          cenote_indexer_holders* out) {
  return ask(reader, out, "cenote_indexer_holders", [&](reader_object& target, cenote_indexer_holders& output) {
    if (is_hollow(keys, key_count)) return null_argument("keys");
    if (key_count > indexer::question_limits::keys) {
      return failed({error_code::invalid_argument,
                     "a question has at most " + std::to_string(indexer::question_limits::keys) + " keys"});
    }
    question_memory& memory = target.memory;
    memory.holders.clear();
    memory.ends.clear();
    memory.names.clear();
    const auto found = target.questions.lookup({keys, key_count}, [&](std::span<const indexer::named_holder> holders) {
      for (const indexer::named_holder& each : holders) {
        memory.holders.push_back({{nullptr, each.pod.size()}, each.dp_rank, each.medium});
        memory.names += each.pod;
      }
      memory.ends.push_back(memory.holders.size());
    });
    if (!found) return failed(found.error());
    std::size_t offset = 0;
    for (cenote_indexer_holder& each : memory.holders) place_texts(memory.names, offset, each.pod);
    output.holders = memory.holders.data();
    output.ends = memory.ends.data();
    output.block_count = memory.ends.size();
    return success;
  });
}

int cenote_indexer_medium(cenote_indexer_reader* reader, uint32_t medium, cenote_indexer_text* out) {
  clear_results(out);
  return with_reader(reader, [&](reader_object& target) {
    if (out == nullptr) return null_argument("out");
    if (medium >= CENOTE_INDEXER_MEDIA) return success;
    *out = text_of(target.questions.reader().medium_name(static_cast<indexer::medium_number>(medium)));
    return success;
  });
}

int cenote_indexer_pods_of(cenote_indexer_reader* reader, cenote_indexer_pods* out) {
  return ask(reader, out, "cenote_indexer_pods", [&](reader_object& target, cenote_indexer_pods& output) {
    const thread_turn turn(target.impl->is_taken);
    if (!turn) return busy("indexer");
    question_memory& memory = target.memory;
    memory.members.clear();
    memory.names.clear();
    target.impl->index.pods([&](const indexer::local_pod& pod) {
      memory.members.push_back(pod_of(pod));
      memory.names.append(pod.pod).append(pod.model).append(pod.topic);
    });
    std::size_t offset = 0;
    for (cenote_indexer_pod& each : memory.members) place_texts(memory.names, offset, each.pod, each.model, each.topic);
    output.pods = memory.members.data();
    output.pod_count = memory.members.size();
    return success;
  });
}

}  // extern "C"
