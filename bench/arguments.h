/// The arguments of a program. Only arguments.cc includes CLI11, which the compiler reads for
/// longer than it does most programs.
///
///     Options options;
///     bench::Arguments arguments("Measures random reads of a file");
///     arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
///     arguments.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
///     if (const auto code = arguments.parse(argc, argv)) {
///       return *code;
///     }
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::bench {

/// One argument that a program takes. Each function adds something that it demands, of every value
/// where there are several, and returns the argument again.
class Argument {
 public:
  /// Values are numbers above 0.
  Argument positive() const;

  /// Values are numbers of at least 0.
  Argument not_negative() const;

  /// Values are whole numbers from `lowest` to `highest`, both included.
  Argument within(int lowest, int highest) const;

  /// Values are numbers from `lowest` to `highest`, both included.
  Argument within(double lowest, double highest) const;

  /// Values are among these numbers.
  Argument one_of(std::initializer_list<int> numbers) const;

  /// Values are among these words.
  Argument one_of(const std::vector<std::string>& words) const;

  /// The program does not run without the argument.
  Argument required() const;

  /// The argument and `other` are not given together.
  Argument excludes(const Argument& other) const;

  /// Several values may be one word, with `delimiter` between them.
  Argument separated_by(char delimiter) const;

  /// Each value has the argument's name before it: `--set A --set B`, not `--set A B`.
  Argument one_at_a_time() const;

 private:
  friend class Arguments;

  explicit Argument(CLI::Option& option) : option_(&option) {}

  CLI::Option* option_;  // is owned by Arguments
};

/// The arguments that a program takes, --help among them.
class Arguments {
 public:
  /// --help begins with `description`.
  explicit Arguments(const std::string& description);
  ~Arguments();

  /// Adds an argument whose value parse() writes to `value`, which outlives this object and keeps
  /// what it holds where the argument is not given. Without dashes before its name it is known by
  /// its place. A vector takes one value or more.
  Argument add(const std::string& name, int& value, const std::string& meaning = "");
  Argument add(const std::string& name, std::int64_t& value, const std::string& meaning = "");
  Argument add(const std::string& name, std::uint32_t& value, const std::string& meaning = "");
  Argument add(const std::string& name, double& value, const std::string& meaning = "");
  Argument add(const std::string& name, std::string& value, const std::string& meaning = "");
  Argument add(const std::string& name, std::vector<int>& values, const std::string& meaning = "");
  Argument add(const std::string& name,
               std::vector<std::int64_t>& values,
               const std::string& meaning = "");
  Argument add(const std::string& name,
               std::vector<double>& values,
               const std::string& meaning = "");
  Argument add(const std::string& name,
               std::vector<std::string>& values,
               const std::string& meaning = "");

  /// Adds an argument without a value, which makes `flag` true where it is given.
  Argument add_flag(const std::string& name, bool& flag, const std::string& meaning);

  /// Reads what main() was called with. Returns the exit code where the program ends with that: it
  /// has printed its help, or what is wrong.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace weft::bench
