// Removals that places outside this machine have to confirm: what is removed,
// which places are silent, and when it is asked for again and saved.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/recent_removals.hpp"
#include "cluster/write_offs.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/counters.hpp"
#include "tiers/remote/removal_book.hpp"
#include "tiers/remote/steady_time.hpp"

namespace cenote::remote {

/// A removal goes in a round to all places (nodes, servers) that may have a copy, and is done when one round of it was
/// confirmed by all of them.
///
///     begin() ──► under way ──► end(): confirmed by all ──► answered: done
///                    ▲            └──► some are silent ──► in the book ──► save() ──► answered: pending
///                    └───── take_due(): every repeat_pause, or after hasten() ◄─┘
///
/// Its keys stand in `keys` from begin() on until it is done. No I/O but the book's; not thread-safe; the time is an
/// argument.
class removals {
 public:
  static constexpr std::chrono::seconds repeat_pause{10};
  static constexpr std::chrono::milliseconds save_pause{200};
  static constexpr std::chrono::minutes bound_pause{1};  ///< between two lines of a book that is full

  struct round {
    removal_book::open_removal order{};  ///< its nodes: places without a confirmation
    std::uint64_t repeats = 0;           ///< number of the order in the book; 0: none
    std::size_t open = 0;                ///< answers that are awaited
    bool is_own_open = false;            ///< this node's own copies may be there still: it does not end before
    std::uint64_t removed = 0;
    std::string reason{};                                 ///< the reason of a place
    steady_time deadline{};                               ///< it ends then, whichever place is silent
    std::function<void(result<std::uint64_t>)> answer{};  ///< none of one that is repeated
  };
  /// Contents of the file beside orders and names.
  struct records {
    cluster::clear_record clears{};
    cluster::write_off_record departures{};
  };
  struct hooks {
    steady_time::duration lag{};  ///< a place may have a round's command for so long after its end
    std::function<void(const std::string& event, const std::string& field, const std::string& value)> notice{};
    std::function<records()> copy_records = [] { return records(); };
    /// Of an instance whose orders fill the book.
    removal_book::clear_maker next_clear{};
  };

  /// `book` and `keys` outlive this. The keys of the book's orders stand in `keys` at once.
  removals(removal_book& book, cluster::recent_removals& keys, hooks hooks_in, steady_time now);

  /// Its number.
  std::uint64_t begin(round begun_round, steady_time now);
  /// Null: it has ended.
  [[nodiscard]] round* find(std::uint64_t number) noexcept;
  [[nodiscard]] const std::map<std::uint64_t, round>& rounds() const noexcept { return rounds_; }
  /// The places that are in its order are silent. Its answer is due, or, while it is pending, with the next save().
  void end(std::uint64_t number, steady_time now);

  /// Orders to ask for again, each as a round that has not begun: those of which `is_useful`, all not more often than
  /// every repeat_pause.
  [[nodiscard]] std::vector<round> take_due(steady_time now,
                                            const std::function<bool(const removal_book::open_removal&)>& is_useful);
  /// A place is back, or counts no more: the pause is over.
  void hasten(steady_time now) noexcept { repeats_at_ = now; }

  /// Writes the book if it or the records changed, at most once in a pause, after which the answers that waited for it
  /// are due; also those of what could not be written. `record_changes`: grows with each change of the records. True:
  /// there was something to write.
  bool save(steady_time now, std::uint64_t record_changes = 0);
  /// The next save() writes, whatever the pause.
  void hasten_save(steady_time now) noexcept { saves_at_ = now; }
  /// Gives the answers that are due. The owner publishes its figures first, as a caller may read them then.
  void give_answers();
  /// Answers all that is open.
  void stop();

  /// When take_due() or save() has something to do; max: never.
  [[nodiscard]] steady_time next() const noexcept;
  [[nodiscard]] removal_figures figures() const noexcept;

 private:
  void end_keys(const removal_book::open_removal& order, steady_time now);
  void add(removal_book::open_removal order, steady_time now);
  [[nodiscard]] std::string text_of(const round& outcome) const;
  void note_bound(std::uint64_t dropped, std::uint64_t forced_clears, steady_time now);
  void write(steady_time now, std::uint64_t record_changes);
  void note(std::string_view event, std::string_view field, const std::string& value) const;

  removal_book& book_;
  cluster::recent_removals& keys_;
  const hooks hooks_;
  std::map<std::uint64_t, round> rounds_;  ///< under way, by number
  std::uint64_t next_number_ = 1;
  std::vector<std::function<void()>> unsaved_answers_;  ///< of removals that the file does not have yet
  std::vector<std::function<void()>> due_answers_;
  steady_time repeats_at_{};
  steady_time notes_bound_at_{};     ///< not before
  steady_time saves_at_{};           ///< not before
  std::uint64_t saved_changes_ = 0;  ///< of the records
  bool is_unsaved_ = false;          ///< the last write failed
  bool waits_for_save_ = false;      ///< something changed within the pause
  std::uint64_t repeated_ = 0, failed_saves_ = 0;
};

}  // namespace cenote::remote
