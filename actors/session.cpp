#include "actors/session.hpp"

#include <algorithm>

#include "config/logging.hpp"
#include "memory/group_terms.hpp"

namespace cenote {

namespace {

constexpr auto long_time = std::chrono::seconds(20);  // far above the tier's own deadlines
constexpr std::int64_t most_owed = 2048;  // then nothing is read until some are answered: twice what may be open
constexpr auto longest_pause = std::chrono::milliseconds(500);

}  // namespace

session::session(caf::actor_config& config, session_ptr resources, dram_tier_actor dram, consensus_actor groups)
    : session_actor::base(config),
      resources_(std::move(resources)),
      dram_(std::move(dram)),
      groups_(std::move(groups)),
      rings_(resources_->view) {}

void session::on_exit() {
  for (auto& promise : drained_) promise.deliver(outcome{});
  drained_.clear();
  dram_ = nullptr;
  groups_ = nullptr;
}

session::behavior_type session::make_behavior() {
  return {
      [this](doorbell_atom) {
        resources_->bell_heard();
        serve();
      },
      [this](wake_atom, std::uint64_t number) {
        if (alarm_.take(this, number, std::chrono::steady_clock::now())) serve();
      },
      [this](answer_atom, const completions_ptr& completions) {
        late_.insert(late_.end(), completions->begin(), completions->end());
        const bool full = owed_ >= most_owed;
        owed_ -= std::ranges::count(*completions, memory::completion_kind::done, &memory::completion::kind);
        if (busy_) return;
        answer_late();
        if (full) read_ring();
      },
      [this](report_atom) {
        look_at_time();
        return session_report{resources_, batches_, entries_};
      },
      [this](drain_atom) -> caf::result<outcome> {
        draining_ = true;
        if (!busy_) return outcome{};
        auto promise = make_response_promise<outcome>();
        drained_.push_back(promise);
        return promise;
      },
  };
}

void session::serve() {
  if (busy_) return look_at_time();
  answer_late();
  read_ring();
}

void session::read_ring() {
  while (!broken_ && !draining_) {
    if (owed_ >= most_owed || std::ssize(late_) >= most_owed) return;  // goes on when they are answered, and fetched
    rings_.disarm();
    const auto waiting = rings_.waiting();
    const auto room = rings_.completion_room();
    if (!waiting || !room) return malformed("ring indices");
    if (*waiting == 0) {
      pause_ = {};
      if (rings_.arm()) return;  // the client's next doorbell finds us
      continue;
    }
    batch_ptr work = take_batch(*waiting, *room);
    if (!work) {
      const bool could_answer = *room / 2 >= *waiting;
      if (could_answer && *waiting == memory::session_memory::submissions) {
        return malformed("a full ring without a whole request");
      }
      return look_again();  // answers are not fetched, or a request is not whole yet
    }
    pause_ = {};
    ++batches_;
    entries_ += work->entries.size();
    if (!is_for_groups(work->entries.front())) return pass_to_tier(std::move(work));
    pass_to_groups(std::move(work->entries));
  }
}

bool session::is_for_groups(const memory::submission& entry) const noexcept {
  return groups_ && memory::is_for_groups(entry.op);
}

void session::pass_to_groups(std::vector<memory::submission> entries) {
  owed_ += std::ranges::count_if(entries,
                                 [](const auto& each) { return (each.flags & memory::submission::flag_last) != 0; });
  rings_.advance(entries.size());
  send(groups_, group_requests_atom_v,
       std::make_shared<const group_requests>(resources_, caf::actor_cast<caf::strong_actor_ptr>(this),
                                              std::move(entries)));
}

void session::pass_to_tier(batch_ptr work) {
  busy_ = true;
  sent_ = std::chrono::steady_clock::now();
  told_ = false;
  // No deadline of its own: slow is not dead, and a tier that hangs is noticed by the keeper (node.hang_timeout).
  request(dram_, caf::infinite, run_atom_v, std::move(work))
      .then(
          [this](const batch_ptr& finished) {
            busy_ = false;
            owed_ += static_cast<std::int64_t>(finished->late_answers);
            answer(*finished);
            answer_late();
            if (draining_) {
              for (auto& promise : drained_) promise.deliver(outcome{});
              drained_.clear();
            } else {
              read_ring();
            }
          },
          [this](const caf::error& why) {
            // The tier is gone: there is one recovery path, and it is a new worker.
            log_error(logger("session"), "the tier is gone", {{"session", resources_->number}});
            quit(why);
          });
}

batch_ptr session::take_batch(std::uint64_t waiting, std::uint64_t room) const {
  auto work = std::make_shared<blocks::batch>();
  work->session = resources_->number;
  const std::uint64_t most = std::min(waiting, room / 2);  // an entry has an answer and, if it is the last, a `done`
  work->entries.reserve(most);
  std::size_t whole = 0;
  for (std::uint64_t i = 0; i < most; ++i) {
    const memory::submission entry = rings_.peek(i);
    const bool begins = whole == work->entries.size();  // a request
    if (i > 0 && begins && is_for_groups(entry) != is_for_groups(work->entries.front())) break;
    work->entries.push_back(entry);
    if ((work->entries.back().flags & memory::submission::flag_last) != 0) whole = work->entries.size();
  }
  work->entries.resize(whole);
  return whole == 0 ? nullptr : work;
}

void session::answer(const blocks::batch& finished) {
  for (const memory::completion& each : finished.completions) rings_.push(each);
  const bool sleeps = rings_.publish();
  rings_.advance(finished.entries.size());
  if (sleeps && !finished.completions.empty() && rings_.claim_wake()) resources_->ring();
}

void session::answer_late() {
  if (late_.empty() || broken_) return;
  const auto room = rings_.completion_room();
  if (!room) return malformed("ring indices");
  const std::size_t count = std::min<std::size_t>(late_.size(), *room);
  for (std::size_t i = 0; i < count; ++i) rings_.push(late_[i]);
  late_.erase(late_.begin(), late_.begin() + static_cast<std::ptrdiff_t>(count));
  if (rings_.publish() && count > 0 && rings_.claim_wake()) resources_->ring();
  if (!late_.empty()) look_again();  // the client does not fetch its answers
}

void session::malformed(std::string_view what) {
  broken_ = true;
  log_warn(logger("session"), "malformed ring, nothing more is read from it",
           {{"session", resources_->number}, {"pid", resources_->pid}, {"what", what}});
}

/// A batch that takes long is worth a line, once.
void session::look_at_time() {
  if (!busy_ || told_ || std::chrono::steady_clock::now() - sent_ < long_time) return;
  told_ = true;
  log_warn(logger("session"), "a batch takes long", {{"session", resources_->number}, {"pid", resources_->pid}});
}

void session::look_again() {
  if (alarm_.is_set()) return;
  pause_ = std::min<std::chrono::milliseconds>(pause_ * 2 + std::chrono::milliseconds(5), longest_pause);
  const auto now = std::chrono::steady_clock::now();
  alarm_.set(this, now + pause_, now);
}

}  // namespace cenote
