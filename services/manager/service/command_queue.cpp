#include "services/manager/service/command_queue.hpp"

namespace cenote::manager {

std::unique_ptr<write_command> command_inbox::add(std::unique_ptr<write_command> command) {
  const std::lock_guard lock(mutex_);
  if (mail_.is_stopping) return command;
  mail_.commands.push_back(std::move(command));
  wake_.notify_one();
  return nullptr;
}

void command_inbox::add(storage_news news) {
  const std::lock_guard lock(mutex_);
  mail_.news.push_back(std::move(news));
  wake_.notify_one();
}

void command_inbox::close() {
  const std::lock_guard lock(mutex_);
  mail_.is_stopping = true;
  wake_.notify_one();
}

command_inbox::mail command_inbox::take(round_time deadline) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, deadline,
                   [this] { return mail_.is_stopping || !mail_.commands.empty() || !mail_.news.empty(); });
  mail all = std::move(mail_);
  mail_ = {.is_stopping = all.is_stopping};
  return all;
}

void command_queue::add(std::unique_ptr<write_command> command) {
  const std::string instance(command->instance());
  line& waiting = lines_[instance];
  if (waiting.empty()) turns_.push_back(instance);
  waiting.push_back(std::move(command));
}

std::vector<std::unique_ptr<write_command>> command_queue::advance(write_parts& parts, write_round& round) {
  std::vector<std::unique_ptr<write_command>> complete;
  while (!turns_.empty() && round.keys > 0) {
    std::string instance = std::move(turns_.front());
    turns_.pop_front();
    const auto waiting = lines_.find(instance);
    const bool is_complete = waiting->second.front()->advance(parts, round);
    if (round.keys > 0) --round.keys;  // a command without keys counts, too
    if (is_complete) {
      complete.push_back(std::move(waiting->second.front()));
      waiting->second.pop_front();
    }
    if (waiting->second.empty()) {
      lines_.erase(waiting);
    } else {
      turns_.push_back(std::move(instance));
    }
    if (!is_complete) break;  // the rest of it belongs to the next round, behind the others
  }
  return complete;
}

std::vector<std::unique_ptr<write_command>> command_queue::take_all() {
  std::vector<std::unique_ptr<write_command>> all;
  for (auto& [instance, waiting] : lines_) {
    for (auto& command : waiting) all.push_back(std::move(command));
  }
  lines_.clear();
  turns_.clear();
  return all;
}

}  // namespace cenote::manager
