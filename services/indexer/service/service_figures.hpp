// Figures of the indexer for /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/figure.hpp"
#include "services/indexer/discovery/kubernetes_watch.hpp"
#include "services/indexer/service/indexer_writer.hpp"
#include "services/indexer/service/question_counts.hpp"
#include "services/indexer/subscriber/publisher_table.hpp"
#include "services/indexer/text/text_tokenizer.hpp"
#include "transport/http/metric_families.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::indexer {

/// The names of metrics.
enum class metric_names : std::uint8_t {
  own,       ///< Cenote's
  own_llmd,  ///< those, and llm-d's for what both count
};

/// The index and its publishers at a moment.
struct index_page {
  std::uint64_t bytes = 0, evicted = 0, evicted_held = 0, bad_batches = 0, homeless = 0;
  double apply_s = 0;
  std::uint64_t publishers = 0, replays = 0, waiting_bytes = 0;
};

/// An index on a Redis server.
struct shared_page {
  std::uint64_t serving = 0, commands = 0, failures = 0, connections = 0, refused = 0, waiting_bytes = 0;
  std::uint64_t dropped_batches = 0, rebuilt_publishers = 0, unanswered = 0, strange_fields = 0;
};

}  // namespace cenote::indexer

namespace cenote {

template <>
struct figure_table<indexer::shared_page> {
  using all = indexer::shared_page;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_redis_serving", gauge, "servers", "1 while the Redis server of the index answers.",
       &all::serving},
      {"", "cenote_indexer_redis_commands_total", counter, "commands", "Commands that were written there.",
       &all::commands},
      {"", "cenote_indexer_redis_failures_total", counter, "attempts",
       "Pipelines of commands that were to be sent again: the server was away, or full.", &all::failures},
      {"", "cenote_indexer_redis_connections_total", counter, "connections", "Connections of the writer.",
       &all::connections},
      {"", "cenote_indexer_redis_refused_commands_total", counter, "commands",
       "Commands that the server answered with an error.", &all::refused},
      {"", "cenote_indexer_redis_waiting_bytes", gauge, "bytes", "Batches that wait for the server.",
       &all::waiting_bytes},
      {"", "cenote_indexer_redis_dropped_batches_total", counter, "batches",
       "Batches that found no room in the queue: their publishers are asked for all of their blocks.",
       &all::dropped_batches},
      {"", "cenote_indexer_redis_rebuilt_publishers_total", counter, "publishers",
       "Publishers that were asked for all of their blocks.", &all::rebuilt_publishers},
      {"", "cenote_indexer_redis_unanswered_questions_total", counter, "questions",
       "Questions with an empty answer, since the server was away.", &all::unanswered},
      {"", "cenote_indexer_redis_strange_entries_total", counter, "entries",
       "Fields and keys that are no entries of pods: they were passed.", &all::strange_fields},
  });
};

template <>
struct figure_table<indexer::index_page> {
  using all = indexer::index_page;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_memory_bytes", gauge, "bytes", "Memory of the index, of `index.memory`.", &all::bytes},
      {"", "cenote_indexer_evicted_blocks_total", counter, "blocks", "Blocks that made room for others.",
       &all::evicted},
      {"", "cenote_indexer_evicted_held_blocks_total", counter, "blocks",
       "Of those, blocks that some pod had: its scores may be too low.", &all::evicted_held},
      {"", "cenote_indexer_batches_bad_total", counter, "batches", "Payloads that are no batch, or exceed a bound.",
       &all::bad_batches},
      {"", "cenote_indexer_publishers_without_room_total", counter, "publishers",
       "Publishers whose pod or model found no room in the index.", &all::homeless},
      {"", "cenote_indexer_apply_seconds_total", counter, "seconds", "Time of decoding and applying batches.",
       &all::apply_s},
      {"", "cenote_indexer_publishers", gauge, "publishers", "Publishers that are known.", &all::publishers},
      {"", "cenote_indexer_replays", gauge, "replays", "Replays under way.", &all::replays},
      {"", "cenote_indexer_waiting_bytes", gauge, "bytes", "Live batches that wait behind replays.",
       &all::waiting_bytes},
  });
};

template <>
struct figure_table<indexer::discovery_counters> {
  using all = indexer::discovery_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_discovered_pods", figure_kind::gauge, "pods", "Pods of Kubernetes that are followed.",
       &all::pods},
      {"", "cenote_indexer_discovery_lists_total", counter, "lists", "Lists of pods that were read whole.",
       &all::lists},
      {"", "cenote_indexer_discovery_failures_total", counter, "questions",
       "Lists and watches of the API server that broke off.", &all::failures},
      {"", "cenote_indexer_discovery_refused_total", counter, "pods", "Pods and changes that were passed over.",
       &all::refused},
  });
};

template <>
struct figure_table<http::request_server_figures> {
  using all = http::request_server_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_http_connections", gauge, "connections", "Connections over HTTP.", &all::connections},
      {"", "cenote_indexer_http_accepted_total", counter, "connections", "Connections that were accepted.",
       &all::accepted},
      {"", "cenote_indexer_http_refused_total", counter, "connections", "Connections that found no room.",
       &all::refused},
      {"", "cenote_indexer_http_displaced_total", counter, "connections", "Connections that were closed to make room.",
       &all::displaced},
      {"", "cenote_indexer_http_expired_total", counter, "connections",
       "Connections that ended at a deadline, but for idle ones.", &all::expired},
      {"", "cenote_indexer_http_failed_handshakes_total", counter, "connections", "Handshakes of TLS that failed.",
       &all::failed_handshakes},
      {"", "cenote_indexer_http_received_bytes_total", counter, "bytes", "Bytes of HTTP, without TLS.", &all::bytes_in},
      {"", "cenote_indexer_http_sent_bytes_total", counter, "bytes", "Bytes of HTTP, without TLS.", &all::bytes_out},
  });
};

template <>
struct figure_table<indexer::placement_counters> {
  using all = indexer::placement_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_batches_total", counter, "batches", "Batches of events that were applied.", &all::batches},
      {"", "cenote_indexer_blocks_stored_total", counter, "blocks", "Blocks that events have stored.", &all::stored},
      {"", "cenote_indexer_blocks_removed_total", counter, "blocks", "Blocks that events have removed.", &all::removed},
      {"", "cenote_indexer_clears_total", counter, "events", "Events that cleared all blocks of a medium.",
       &all::clears},
  });
};

template <>
struct figure_table<indexer::subscriber_counters> {
  using all = indexer::subscriber_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"", "cenote_indexer_live_batches_total", counter, "batches", "Batches that came live.", &all::batches},
      {"", "cenote_indexer_live_bytes_total", counter, "bytes", "Bytes of their payloads.", &all::bytes},
      {"", "cenote_indexer_messages_malformed_total", counter, "messages", "Messages that are no batch.",
       &all::malformed},
      {"", "cenote_indexer_messages_foreign_total", counter, "messages",
       "Batches of a topic that is not their publisher's.", &all::foreign},
      {"", "cenote_indexer_topics_refused_total", counter, "topics", "New topics without a pod, or too long.",
       &all::refused_topics},
      {"", "cenote_indexer_publishers_refused_total", counter, "publishers", "New publishers that found no room.",
       &all::refused_publishers},
      {"", "cenote_indexer_replays_refused_total", counter, "replays", "Replays that found no socket.",
       &all::refused_replays},
      {"", "cenote_indexer_publishers_expired_total", counter, "publishers", "Publishers that were away for too long.",
       &all::expired},
  });
};

}  // namespace cenote

namespace cenote::indexer {

/// The page of /metrics, part by part.
class metrics_page {
 public:
  explicit metrics_page(metric_names names) noexcept : names_(names) {}

  /// The index, its events, and each publisher.
  void add_index(const writer_figures& figures, const publisher_table& publishers);
  void add_questions(const question_counts& answered);
  /// Blocks of a pod's rank in a medium; of 16,384 ranks and media the first ones.
  void add_blocks(const pod_rank& member, std::string_view model, std::string_view medium, std::uint64_t blocks);
  void add_texts(const text_counters& texts);
  void add_pods(const discovery_counters& pods) { page_.figures(pods); }
  void add_shared(const shared_page& figures) { page_.figures(figures); }
  void add_server(const http::request_server_figures& server);

  [[nodiscard]] std::string text() const { return page_.text(); }

 private:
  void add_events(const placement_counters& events);
  void add_publisher(const publisher_row& row);
  /// Under llm-d's name, too, if that is wanted.
  void add_alias(std::string_view name, std::string_view help, std::uint64_t value);

  metric_names names_;
  http::metric_families page_;
  std::size_t block_rows_ = 0;
};

}  // namespace cenote::indexer
