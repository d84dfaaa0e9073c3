// Whether everybody in this process still answers.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cenote {

/// Asks each subject for a sign of life, one question at a time: a subject that does not answer is not asked again, and
/// its late answer counts. Slow is not dead: how long is too long, others decide. Not thread-safe; the answers may come
/// from any thread.
class pulse {
 public:
  /// Calls its argument, soon, on the thread that is in doubt.
  using question = std::function<void(std::function<void()> answer)>;

  void add(std::string name, question ask);

  /// An actor answers when it comes to its next message.
  template <class Actor>
  void add_actor(const std::string& name, caf::actor_system& system, const Actor& whom) {
    add(name, [&system, weak = caf::actor_cast<caf::weak_actor_ptr>(whom)](const std::function<void()>& answer) {
      ask_actor(system, weak, answer);
    });
  }

  struct report {
    unsigned missed = 0;  ///< beats that the longest open question has been late for
    std::string late;     ///< who has not answered, "" when everybody has
  };
  /// Asks all who have answered; says who has not since the beat before.
  [[nodiscard]] report beat();

 private:
  struct subject {
    std::string name;
    question ask;
    unsigned missed = 0;
    std::shared_ptr<std::atomic<bool>> answered = std::make_shared<std::atomic<bool>>(true);
  };

  static void ask_actor(caf::actor_system& system, const caf::weak_actor_ptr& whom, std::function<void()> answer);

  std::vector<subject> subjects_;
};

}  // namespace cenote
