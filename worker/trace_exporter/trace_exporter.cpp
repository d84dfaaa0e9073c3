#include "worker/trace_exporter/trace_exporter.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "config/logging.hpp"
#include "core/random_number.hpp"

namespace cenote::traces {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t most_spans = total_of(node_bound::trace_spans);
constexpr std::size_t batch_spans = 512;
constexpr int tries_of_batch = 5;
constexpr std::size_t most_answer_bytes = std::size_t{64} << 10;  // of a success: a text about spans is shorter
constexpr milliseconds stop_margin{250};                          // a look-up of a name alone takes longer

/// The fate of a request.
enum class post_result : std::uint8_t {
  taken,
  away,     ///< it may be sent again
  refused,  ///< it would be refused again
};

struct post_outcome {
  post_result fate = post_result::away;
  std::uint64_t rejected = 0;  ///< of spans in it
  std::string reason{};
};

post_outcome judge(const result<http::service_answer>& answer, std::string_view body) {
  if (!answer) return {post_result::away, 0, answer.error().describe()};
  const int status = answer->status;
  const std::string reason = "status " + std::to_string(status);
  if (status >= 200 && status < 300) return {post_result::taken, rejected_spans(body), {}};
  const bool may_come_back = status == 429 || (status >= 502 && status <= 504);
  return {may_come_back ? post_result::away : post_result::refused, 0, reason};
}

}  // namespace

class trace_exporter::exporting_loop : public std::enable_shared_from_this<exporting_loop> {
 public:
  explicit exporting_loop(exporter_options options) : options_(std::move(options)) {}

  [[nodiscard]] result<void> start() {
    try {
      thread_ = std::thread([self = shared_from_this()] { self->run(); });
    } catch (const std::system_error& refused) {
      return fail(error_code::system, std::string("no thread: ") + refused.what());
    }
    return {};
  }

  void add(const share_holder& holder, const std::shared_ptr<const span_origin>& origin,
           const local::span_batch& batch) {
    std::size_t added = 0;
    {
      const std::lock_guard lock(mutex_);
      counts_.dropped_by_client += batch.dropped;
      while (added < batch.spans.size() && !is_stopped_ && !bound_.refusal(holder)) {
        bound_.take(holder);
        waiting_.push_back({holder, {origin, {}, batch.spans[added++]}});
      }
      (is_stopped_ ? counts_.dropped_at_stop : counts_.dropped_full) += batch.spans.size() - added;
    }
    if (added > 0) changed_.notify_all();
  }

  [[nodiscard]] trace_report report() {
    const std::lock_guard lock(mutex_);
    trace_report now = counts_;
    now.waiting = bound_.total_taken();
    return now;
  }

  void stop() {
    stopping_.request_stop();
    bool has_ended = false;
    {
      std::unique_lock lock(mutex_);
      is_stopped_ = true;
      stop_by_ = steady_clock::now() + options_.stop_limit;
      changed_.notify_all();
      has_ended = changed_.wait_for(lock, options_.stop_limit + stop_margin, [this] { return has_ended_; });
    }
    if (has_ended) return thread_.join();
    thread_.detach();  // it looks a name up, which nothing can end, and owns what it needs
  }

 private:
  struct waiting_span {
    share_holder holder;
    exported_span span;
  };
  using waiting_spans = std::vector<waiting_span>;
  static constexpr decltype(exported_span::id) no_id{};

  void run() {
    (void)::pthread_setname_np(::pthread_self(), "trace-exporter");
    while (gather()) deliver(take_batch());
    flush();
    const std::lock_guard lock(mutex_);
    counts_.dropped_at_stop += waiting_.size();
    has_ended_ = true;
    changed_.notify_all();
  }

  /// Until a batch is full or old enough; false at the stop.
  bool gather() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_stopped_ || !waiting_.empty(); });
    changed_.wait_for(lock, options_.gather, [this] { return is_stopped_ || waiting_.size() >= batch_spans; });
    return !is_stopped_;
  }

  waiting_spans take_batch() {
    waiting_spans taken = take_waiting();
    for (waiting_span& each : taken) {
      if (each.span.id == no_id) fill_randomly(each.span.id);  // later requests have the same
    }
    return taken;
  }

  waiting_spans take_waiting() {
    const std::lock_guard lock(mutex_);
    const std::size_t count = std::min(waiting_.size(), batch_spans);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
    waiting_spans taken(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    return taken;
  }

  [[nodiscard]] std::string body_of(const waiting_spans& batch) const {
    std::vector<exported_span> spans;
    spans.reserve(batch.size());
    for (const waiting_span& each : batch) spans.push_back(each.span);
    return otlp_document(options_.resource, spans);
  }

  /// Again and again while the collector is away, up to a bound; at the stop it goes back to those that wait.
  void deliver(waiting_spans batch) {
    for (int tried = 1; tried <= tries_of_batch; ++tried) {
      const post_outcome outcome = post(batch, options_.post_limit, stopping_.get_token());
      if (outcome.fate == post_result::away && stopping_.stop_requested()) return put_back(std::move(batch));
      note(outcome);
      if (outcome.fate != post_result::away) return settle(batch, outcome);
      if (!pause()) return put_back(std::move(batch));
    }
    settle(batch, {});
  }

  post_outcome post(const waiting_spans& batch, milliseconds limit, const std::stop_token& stop) const {
    std::string said;
    const auto take = [&said](std::string_view part) {
      said.append(part.substr(0, most_answer_bytes - said.size()));
      return said.size() < most_answer_bytes;
    };
    try {
      const std::string body = body_of(batch);
      const auto answer = http::follow_service(
          options_.collector, {.method = "POST", .target = options_.target, .body = body}, limit, take, stop);
      return judge(answer, said);
    } catch (const std::exception& thrown) {  // out of descriptors or memory: later there may be some
      return {post_result::away, 0, thrown.what()};
    }
  }

  /// A line for each change, not for each request.
  void note(const post_outcome& outcome) {
    const bool is_good = outcome.fate == post_result::taken;
    if (is_good) pause_ = {};
    if (is_good == !std::exchange(fails_, !is_good)) return;
    const std::string where = options_.collector.address.text() + options_.target;
    if (is_good) return log_info(logger("trace"), "the collector takes spans again", {{"collector", where}});
    log_warn(logger("trace"), "the collector does not take spans; those that find no room are dropped",
             {{"collector", where}, {"reason", outcome.reason}});
  }

  /// False: the exporter stops.
  bool pause() {
    pause_ = std::clamp(2 * pause_, options_.first_pause, options_.longest_pause);
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause_, [this] { return is_stopped_; });
  }

  void settle(const waiting_spans& batch, const post_outcome& outcome) {
    const std::uint64_t all = batch.size();
    const std::uint64_t lost = outcome.fate == post_result::taken ? std::min(outcome.rejected, all) : all;
    const std::lock_guard lock(mutex_);
    counts_.exported += all - lost;
    (outcome.fate == post_result::away ? counts_.dropped_away : counts_.dropped_refused) += lost;
    for (const waiting_span& each : batch) bound_.give_back(each.holder);
  }

  void put_back(waiting_spans batch) {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.begin(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
  }

  /// Once, as far as the time goes; a collector that was away is not waited for.
  void flush() {
    while (!fails_) {
      waiting_spans batch = take_batch();
      if (batch.empty()) return;
      const auto left = std::chrono::duration_cast<milliseconds>(stop_by_ - steady_clock::now());
      const post_outcome outcome = left.count() > 0 ? post(batch, left, {}) : post_outcome();
      if (outcome.fate == post_result::away) return put_back(std::move(batch));
      settle(batch, outcome);
    }
  }

  const exporter_options options_;
  std::stop_source stopping_;  ///< ends the request that is under way
  bool fails_ = false;         ///< this and the next: of the thread
  milliseconds pause_{};
  std::thread thread_;

  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  std::deque<waiting_span> waiting_;
  shared_bound bound_{node_bound::trace_spans, most_spans};  ///< those in a batch included
  trace_report counts_;
  bool is_stopped_ = false;
  bool has_ended_ = false;
  steady_clock::time_point stop_by_{};  ///< set with is_stopped_
};

trace_exporter::trace_exporter(std::shared_ptr<exporting_loop> running) : loop_(std::move(running)) {}

trace_exporter::~trace_exporter() {
  loop_->stop();
}

result<std::unique_ptr<trace_exporter>> trace_exporter::start(exporter_options options) {
  auto running = std::make_shared<exporting_loop>(std::move(options));
  if (auto started = running->start(); !started) return std::unexpected(started.error());
  return std::unique_ptr<trace_exporter>(new trace_exporter(std::move(running)));
}

void trace_exporter::add(const share_holder& holder, const std::shared_ptr<const span_origin>& origin,
                         const local::span_batch& batch) {
  loop_->add(holder, origin, batch);
}

trace_report trace_exporter::report() const {
  return loop_->report();
}

}  // namespace cenote::traces
