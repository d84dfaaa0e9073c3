#include "worker/publisher/publisher.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "config/logging.hpp"
#include "core/unique_fd.hpp"
#include "transport/zmq/number_frame.hpp"
#include "worker/publisher/event_rows.hpp"
#include "worker/publisher/event_socket.hpp"
#include "worker/publisher/replay_desk.hpp"
#include "worker/publisher/replay_socket.hpp"
#include "worker/publisher/snapshot_desk.hpp"

namespace cenote::publishing {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds batch_time{20};  // changes of so long gather
constexpr milliseconds bind_interval{2'000};
constexpr milliseconds retry_interval{2};  // of peers that have not taken all
constexpr milliseconds idle_interval{1'000};
constexpr std::size_t steps_of_walk = 4096;
constexpr std::size_t requests_a_turn = 64;
constexpr std::string_view snapshot_request = "snapshot";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Letters of the tiers' threads to the publisher's. Outlives it with the last question.
class inbox {
 public:
  struct tier_alarm {
    event_medium medium{};
  };
  struct tier_answer {
    event_medium medium{};
    change_answer content;
  };
  using letter = std::variant<tier_alarm, tier_answer>;

  static result<std::shared_ptr<inbox>> make() {
    unique_fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) return fail_errno("eventfd");
    return std::make_shared<inbox>(std::move(fd));
  }
  explicit inbox(unique_fd fd) noexcept : fd_(std::move(fd)) {}

  void put(letter content) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return;
      letters_.push_back(std::move(content));
    }
    wake();
  }
  [[nodiscard]] std::vector<letter> take() {
    std::uint64_t count = 0;
    (void)!::read(fd_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    return std::exchange(letters_, {});
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      letters_.clear();
    }
    wake();
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  void wake() noexcept {
    constexpr std::uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof one);
  }

  unique_fd fd_;
  std::mutex mutex_;
  std::vector<letter> letters_;  ///< one answer and one ring a medium at most
  bool is_closed_ = false;
};

}  // namespace

class publisher::publishing_loop {
 public:
  publishing_loop(node_publisher_options options, std::vector<change_source> sources, zmq::message_context context,
                  std::shared_ptr<inbox> letters)
      : options_(std::move(options)),
        context_(std::move(context)),
        letters_(std::move(letters)),
        rows_(options_.name),
        snapshots_(sources.size()) {
    for (change_source& each : sources) tiers_.push_back({.source = std::move(each)});
    thread_ = std::thread([this] { run(); });
  }
  publishing_loop(const publishing_loop&) = delete;
  publishing_loop& operator=(const publishing_loop&) = delete;
  ~publishing_loop() {
    stopping_ = true;
    letters_->close();
    thread_.join();
  }

 private:
  struct tier {
    change_source source;
    change_reader reader = 1;  ///< the lasting one
    bool has_more = true;      ///< changes wait there, or its walk is not through
    bool is_complete = false;  ///< the walk of the lasting reader is through
    bool is_asked = false;     ///< a question is open
    std::vector<change_reader> closed{};
    event_time next_question{};
  };

  void run() {
    (void)::pthread_setname_np(::pthread_self(), "publisher");
    while (!stopping_) {
      const event_time now = std::chrono::steady_clock::now();
      bind(now);
      for (inbox::letter& each : letters_->take()) take(each, now);
      take_requests(now);
      const auto send = [this](const std::string& peer, std::string_view topic, std::uint64_t seq,
                               std::string_view payload) {
        return replay_ ? replay_->send(peer, topic, seq, payload) : frame_delivery::gone;
      };
      const bool replays_wait = replays_.step(rows_, send, now);
      const bool snapshots_wait = snapshots_.step(send, now);
      if (std::ranges::all_of(tiers_, &tier::is_complete)) snapshots_.begin(now);
      for (tier& each : tiers_) ask(each, now);
      wait(replays_wait || snapshots_wait);
    }
  }

  /// Another process may have the endpoint still.
  void bind(event_time now) {
    if (now < next_bind_) return;
    next_bind_ = event_time::max();
    if (!publishes_) take_endpoint(publishes_, options_.endpoint, now);
    if (!replay_ && !options_.replay.empty()) take_endpoint(replay_, options_.replay, now);
  }

  template <class Socket>
  void take_endpoint(std::optional<Socket>& socket, const std::string& endpoint, event_time now) {
    auto bound = Socket::bind(context_, endpoint);
    if (bound) {
      socket.emplace(std::move(*bound));
      log_info(logger("publisher"), "bound", {{"endpoint", socket->endpoint()}});
      return;
    }
    next_bind_ = now + bind_interval;
    if (std::exchange(has_warned_, true)) return;
    log_warn(logger("publisher"), "an endpoint cannot be had; it is tried again",
             {{"endpoint", endpoint}, {"reason", bound.error().describe()}});
  }

  void take(inbox::letter& letter, event_time now) {
    if (const auto* rung = std::get_if<inbox::tier_alarm>(&letter)) {
      tier_of(rung->medium).has_more = true;
      return;
    }
    auto& answer = std::get<inbox::tier_answer>(letter);
    tier& asked_tier = tier_of(answer.medium);
    asked_tier.is_asked = false;
    asked_tier.has_more = false;
    asked_tier.next_question = now + batch_time;
    for (const auto& [reader, run] : answer.content.runs) {
      if (reader == asked_tier.reader)
        take_live(asked_tier, run);
      else
        snapshots_.take(answer.medium, reader, run, rows_, seconds_since_1970());
    }
  }

  void take_live(tier& asked_tier, const change_run& run) {
    const event_medium medium = asked_tier.source.medium;
    if (run.begins_anew) snapshots_.fail();
    asked_tier.is_complete = run.is_complete;
    asked_tier.has_more |= !run.is_complete;
    if (!run.is_complete) asked_tier.next_question = {};
    if (rows_.take(medium, run)) {
      snapshots_.take_live(medium, run, rows_, seconds_since_1970());
    } else {  // the first run of a new reader takes the place of all that was published
      asked_tier.closed.push_back(asked_tier.reader++);
      asked_tier.is_complete = false;
      asked_tier.has_more = true;
      asked_tier.next_question = {};
      snapshots_.fail();
    }
    for (const numbered_batch& each : rows_.flush(seconds_since_1970())) {
      if (publishes_) publishes_->send(*each.topic, each.seq, *each.payload);
    }
  }

  void take_requests(event_time now) {
    for (std::size_t i = 0; replay_ && i < requests_a_turn; ++i) {
      auto request = replay_->receive();
      if (!request) return;
      take(*request, now);
    }
    continue_at_once_ = replay_.has_value();
  }

  /// Requests that make no sense are not answered.
  void take(replay_message& request, event_time now) {
    if (request.frames.empty() || request.frames.size() > 2) return;
    std::string topic = request.frames.size() == 2 ? std::move(request.frames[1]) : std::string();
    const std::string& content = request.frames[0];
    if (content == snapshot_request) {
      (void)snapshots_.ask(request.peer, std::move(topic), now);
    } else if (const auto start = zmq::number_in(content)) {
      (void)replays_.ask(request.peer, std::move(topic), *start, rows_, now);
    }
  }

  void ask(tier& asked_tier, event_time now) {
    if (asked_tier.is_asked) return;
    const event_medium medium = asked_tier.source.medium;
    const auto of_snapshot = asked_tier.is_complete ? snapshots_.reader_of(medium) : std::nullopt;
    const bool is_due = asked_tier.has_more && now >= asked_tier.next_question;
    if (!is_due && !of_snapshot && asked_tier.closed.empty() && !snapshots_.has_closed(medium)) return;
    auto question = std::make_shared<change_question>();
    question->readers.push_back(asked_tier.reader);
    if (of_snapshot) question->readers.push_back(*of_snapshot);
    question->closed = std::exchange(asked_tier.closed, {});
    for (const change_reader each : snapshots_.take_closed(medium)) question->closed.push_back(each);
    question->steps = steps_of_walk;
    question->ring = [letters = letters_, medium] { letters->put(inbox::tier_alarm{medium}); };
    question->answer = [letters = letters_, medium](change_answer answer) {
      letters->put(inbox::tier_answer{medium, std::move(answer)});
    };
    asked_tier.is_asked = true;
    asked_tier.source.ask(std::move(question));
  }

  void wait(bool somebody_waits) {
    const event_time now = std::chrono::steady_clock::now();
    event_time until = now + idle_interval;
    if (somebody_waits) until = now + retry_interval;
    until = std::min(until, next_bind_);
    for (const tier& each : tiers_) {
      if (each.has_more && !each.is_asked) until = std::min(until, each.next_question);
    }
    auto left = std::chrono::ceil<milliseconds>(std::max(until, now) - now);
    if (std::exchange(continue_at_once_, false)) left = milliseconds(0);
    std::array<zmq_pollitem_t, 2> items{zmq_pollitem_t{nullptr, letters_->fd(), ZMQ_POLLIN, 0},
                                        zmq_pollitem_t{replay_ ? replay_->handle() : nullptr, -1, ZMQ_POLLIN, 0}};
    (void)::zmq_poll(items.data(), replay_ ? 2 : 1, left.count());
  }

  [[nodiscard]] tier& tier_of(event_medium medium) { return tiers_[static_cast<std::size_t>(medium)]; }

  node_publisher_options options_;
  zmq::message_context context_;
  std::shared_ptr<inbox> letters_;
  std::optional<event_socket> publishes_;
  std::optional<replay_socket> replay_;
  std::vector<tier> tiers_;  ///< by medium
  event_rows rows_;
  replay_desk replays_;
  snapshot_desk snapshots_;
  event_time next_bind_{};
  bool has_warned_ = false;
  bool continue_at_once_ = false;  ///< there is more to do than one turn did
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

publisher::publisher(std::unique_ptr<publishing_loop> running) : loop_(std::move(running)) {}
publisher::~publisher() = default;

result<std::unique_ptr<publisher>> publisher::start(node_publisher_options options,
                                                    std::vector<change_source> sources) {
  auto context = zmq::message_context::make(2);
  if (!context) return std::unexpected(context.error());
  auto letters = inbox::make();
  if (!letters) return std::unexpected(letters.error());
  auto running = std::make_unique<publishing_loop>(std::move(options), std::move(sources), std::move(*context),
                                                   std::move(*letters));
  return std::unique_ptr<publisher>(new publisher(std::move(running)));
}

}  // namespace cenote::publishing
